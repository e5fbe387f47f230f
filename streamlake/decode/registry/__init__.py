"""Schema registry: its client, its wire format, and the decoders of records in that format."""
