"""The key index on the driver: its states and files, and the look-up of old rows' positions."""
