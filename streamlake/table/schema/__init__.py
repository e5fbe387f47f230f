"""Schema evolution: schema updates, and union by name."""
