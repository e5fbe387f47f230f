"""The runs: one checkpoint after the other is written, staged and committed."""
