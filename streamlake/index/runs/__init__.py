"""Sorted runs of index entries: format, files, look-up, merging."""
