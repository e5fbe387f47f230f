"""The key index: which data file and position holds the live row of a key."""
