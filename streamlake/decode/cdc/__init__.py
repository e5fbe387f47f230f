"""Decoders of change events (Debezium, Maxwell, Canal): the rows they change, their tables and row kinds."""
