"""Reading tables: which files a scan needs, and their live rows as Arrow."""
