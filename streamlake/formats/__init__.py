"""File formats: Arrow schemas, data files, delete files, manifests, manifest lists and metadata files."""
