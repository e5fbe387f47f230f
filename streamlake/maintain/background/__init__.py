"""Maintenance beside a stream: what is due by what commits have left, a lease, runs in processes."""
