"""Values and helpers that all decoders share: envelopes, decoded batches, text columns, limits."""
