"""Lineage checks: whether checkpoint directory, staged state and table belong together."""
