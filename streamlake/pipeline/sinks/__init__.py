"""The sinks: one table, many tables, and what binds them to a checkpoint directory."""
