"""Splits: the parts of data files that one task reads, cut and combined as Iceberg does."""
