"""Writes rows to data and delete files on executors: row check, partitioning, rolling, fanout, results."""
