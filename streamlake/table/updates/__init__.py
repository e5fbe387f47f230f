"""Changes of metadata that add no files: properties, branches and tags, and the retries of commits."""
