"""Schemas and their data types as in the Iceberg specification, and their text and JSON forms."""
