"""Decoder of JSON records to columns, in bulk."""
