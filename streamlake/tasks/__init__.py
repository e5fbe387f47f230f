"""Task code: it fetches, decodes and writes one task's share on the executors.

It writes files; only the driver commits.
"""
