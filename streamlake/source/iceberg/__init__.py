"""An Iceberg table as a source: which rows of which snapshots are meant, and offsets into it."""
