"""The tables of a pipeline, for their maintenance from outside."""
