"""Decoders of raw records to rows: bytes and a schema to Arrow, in bulk; every failure names its record."""
