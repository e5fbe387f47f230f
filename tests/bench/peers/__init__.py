"""Peers on a Kafka topic: Flink's Iceberg sink, Spark's Kafka source with Iceberg's runtime, and streamlake, side by side."""

from __future__ import annotations

SCHEMA = "id bigint not null, name string, category string, amount double, ts timestamp_ntz, payload string, seq bigint"
"""The columns of every table in the comparison; the Java programs have them too."""
