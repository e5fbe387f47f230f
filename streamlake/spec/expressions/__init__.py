"""Filters: parsing, binding to a schema, and evaluation on partitions and column bounds."""
