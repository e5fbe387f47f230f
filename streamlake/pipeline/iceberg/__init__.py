"""An Iceberg table as a stream, on the driver: discovery of snapshots, micro-batches, splits.

No Spark in it but in `frames`, where a table is a DataFrame.
"""
