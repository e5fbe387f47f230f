"""Producers of snapshots: append, overwrite, replace partitions, row delta, and their validation."""
