"""Where tables are found, and where the swap of the metadata pointer is atomic."""
