"""Queries that read their source directly: Spark's ticks, and a log of offsets of our own beside them."""
