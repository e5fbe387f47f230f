"""Storage access: `FileIO` reads and writes whole files, `TableLocations` knows all paths of a table."""
