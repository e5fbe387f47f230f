"""The module by which Spark finds "streamlake": it looks for top-level modules named `pyspark_*`.

The wheel installs this file as `pyspark_streamlake_iceberg.py`; such a module has one format each. Invariant:
it holds nothing but the name that Spark looks for.
"""

from __future__ import annotations

from streamlake.pipeline.iceberg.frames.iceberg_data_source import IcebergDataSource as DefaultSource

__all__ = ["DefaultSource"]
