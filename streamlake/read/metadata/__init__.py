"""Metadata tables as Arrow: names, columns and meanings of Iceberg's own."""
