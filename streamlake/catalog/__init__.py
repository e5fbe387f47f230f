"""Catalogs: where tables are found, and where the metadata pointer is swapped atomically."""
