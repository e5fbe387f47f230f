"""Commits on the driver: each staged Committable becomes exactly one snapshot, in checkpoint order."""
