"""`streamlake status`: shows how far a pipeline has come."""
