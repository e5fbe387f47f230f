"""Avro data files, and the Avro container files that hold manifests."""
