"""Kafka source: offsets on the driver, raw record batches on the executors.

Nothing else uses a Kafka client.
"""
