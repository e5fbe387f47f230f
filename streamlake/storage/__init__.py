"""storage: bytes <-> paths. `FileIO` moves whole files, `TableLocations` knows every path that a table writes."""
