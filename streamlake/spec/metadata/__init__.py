"""Table metadata as values: snapshots, manifests, data files, and the metadata of the table itself."""
