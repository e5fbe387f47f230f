"""`streamlake check`: finds out whether a pipeline could start."""
