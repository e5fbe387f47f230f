"""`streamlake verify`: finds out whether the table holds what its source says."""
