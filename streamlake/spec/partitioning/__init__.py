"""Partition specs, sort orders, their transforms, and type promotion."""
