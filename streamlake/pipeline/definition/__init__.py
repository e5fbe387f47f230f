"""Pipeline files: reading one, and running it."""
