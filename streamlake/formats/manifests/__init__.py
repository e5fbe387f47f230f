"""Manifests, manifest lists and table metadata files: encoding and decoding."""
