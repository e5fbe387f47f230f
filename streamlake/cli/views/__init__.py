"""Terminal views: what the commands print."""
