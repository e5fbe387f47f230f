"""The upsert task: the last change per key, old rows, missing fields, truncates."""
