"""Compaction: small files, and files with many deletes, are written again as files of the target size."""
