"""The format "streamlake": tables as DataFrames of Spark, in batches and as streams."""
