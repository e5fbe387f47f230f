"""Decoder of Avro records to columns, in bulk."""
