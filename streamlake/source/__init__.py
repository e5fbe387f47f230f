"""Kafka: offsets on the driver, raw record batches on the executors. The only room that knows Kafka."""
