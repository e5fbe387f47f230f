"""Maintenance: what keeps a table healthy over months (expiry, orphan removal, manifests, old metadata)."""
