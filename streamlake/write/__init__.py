"""Rows -> data files (and, later, delete files) on executors: row check, partitioning, rolling, fanout, results."""
