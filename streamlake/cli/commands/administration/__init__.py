"""Commands that look after tables: catalogs, tables, namespaces, branches and tags."""
