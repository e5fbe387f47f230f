"""Deletion vectors (Puffin) and position delete files as files."""
