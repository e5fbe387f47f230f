"""Routed topics: rows of one stream that go into several tables."""
