"""Parquet data files: writer, reader, reading by pages and row groups, metrics."""
