"""Kafka on the driver: offset ranges of the direct path, their log, and the Spark data source."""
