"""Raw records to rows: from bytes and a schema to Arrow, in bulk; every failure names its record."""
