"""streamlake: streams into Apache Iceberg tables, exactly once, on Spark Structured Streaming.

Public names are loaded on first use (PEP 562): `import streamlake` costs nothing, and an executor loads only
what it uses.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Every mapInArrow would say so, and no pandas is involved there. Where pandas is (toPandas, pandas UDFs with
# type hints), PySpark still warns.
warnings.filterwarnings(
    "ignore",
    message="PySpark does not yet fully support pandas",
    category=FutureWarning,
    module=r"pyspark\.sql\.(connect\.utils|pandas\.functions)$",
)

_PUBLIC = {
    "IcebergSink": "streamlake.pipeline.sinks.sink",
    "IcebergSource": "streamlake.source.iceberg.iceberg_source",
    "IcebergTables": "streamlake.pipeline.sinks.tables_sink",
    "KafkaSource": "streamlake.source.kafka_source",
    "ManageRefs": "streamlake.table.updates.manage_refs",
    "PostgresTable": "streamlake.operate.verify.postgres_table",
    "ReplaceSortOrder": "streamlake.table.updates.replace_sort_order",
    "UpdatePartitionSpec": "streamlake.table.updates.update_partition_spec",
    "UpdateProperties": "streamlake.table.updates.update_properties",
    "UpdateSchema": "streamlake.table.schema.update_schema",
    "create_namespace": "streamlake.catalogs",
    "create_table": "streamlake.tables",
    "diagnose": "streamlake.operate.doctor.diagnosis",
    "drop_namespace": "streamlake.catalogs",
    "drop_table": "streamlake.catalogs",
    "list_namespaces": "streamlake.catalogs",
    "list_tables": "streamlake.catalogs",
    "load_table": "streamlake.tables",
    "namespace_properties": "streamlake.catalogs",
    "register_table": "streamlake.catalogs",
    "rename_table": "streamlake.catalogs",
    "update_namespace_properties": "streamlake.catalogs",
    "verify": "streamlake.operate.verify.verification",
}

__all__ = [
    "IcebergSink",
    "IcebergSource",
    "IcebergTables",
    "KafkaSource",
    "ManageRefs",
    "PostgresTable",
    "ReplaceSortOrder",
    "UpdatePartitionSpec",
    "UpdateProperties",
    "UpdateSchema",
    "__version__",
    "create_namespace",
    "create_table",
    "diagnose",
    "drop_namespace",
    "drop_table",
    "list_namespaces",
    "list_tables",
    "load_table",
    "namespace_properties",
    "register_table",
    "rename_table",
    "update_namespace_properties",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'streamlake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
