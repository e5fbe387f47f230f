"""The rejects of a table while a query runs: their table, and changes that tasks refuse."""
