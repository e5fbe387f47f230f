"""Metastores: services that hold a pointer to a table's metadata file; the file itself is written here."""
