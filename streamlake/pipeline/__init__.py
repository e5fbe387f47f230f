"""The driver's side of a pipeline: pipeline files, sinks, runs, key index, Kafka source, Spark."""
