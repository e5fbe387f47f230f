"""Converters of a record's values to a column's type."""
