"""formats: values <-> bytes. Arrow schemas, data files, manifests, manifest lists and metadata files."""
