"""The only room that knows Spark: sink, micro-batch, sources of offset ranges, distribution, progress."""
