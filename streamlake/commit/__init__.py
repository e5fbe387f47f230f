"""Committables -> one snapshot each, once, in checkpoint order. Driver only."""
