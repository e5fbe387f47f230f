"""The Iceberg table specification as immutable values. Standard library only, no I/O."""
