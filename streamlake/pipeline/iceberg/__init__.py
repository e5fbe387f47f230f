"""An Iceberg table as a stream, on the driver: which snapshots come next, micro-batches, splits for tasks."""
