"""Spark itself: sessions, queries, task outcomes, files of a checkpoint directory, Python workers."""
