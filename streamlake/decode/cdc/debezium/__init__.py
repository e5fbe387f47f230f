"""Debezium's envelopes, values and source positions."""
