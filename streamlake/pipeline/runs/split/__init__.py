"""One micro-batch of a table as the source, written into one table."""
