"""`streamlake recover`: the ways out of a contradiction between checkpoint directory and table."""
