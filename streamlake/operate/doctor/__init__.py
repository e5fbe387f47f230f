"""`streamlake doctor`: finds out whether table, staged checkpoints and key index are in order."""
