"""Reading tables: scan planning, delete files, and live rows as Arrow."""
