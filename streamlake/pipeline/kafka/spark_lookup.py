"""The module by which Spark finds "streamlake-kafka": it looks for top-level modules named `pyspark_*`.

The wheel installs this file as `pyspark_streamlake.py`. Invariant: it holds nothing but the name that Spark
looks for.
"""

from __future__ import annotations

from streamlake.pipeline.kafka.kafka_data_source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
