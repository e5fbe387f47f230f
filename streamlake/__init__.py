"""streamlake: streams into Apache Iceberg tables, exactly once, on Spark Structured Streaming.

Public names are loaded on first use (PEP 562): `import streamlake` costs nothing, and an executor loads only
what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "IcebergSink": "streamlake.pipeline.sink",
    "IcebergTables": "streamlake.pipeline.tables_sink",
    "KafkaSource": "streamlake.source.kafka_source",
    "create_table": "streamlake.tables",
    "load_table": "streamlake.tables",
    "verify": "streamlake.pipeline.verification",
}

__all__ = [
    "IcebergSink",
    "IcebergTables",
    "KafkaSource",
    "__version__",
    "create_table",
    "load_table",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'streamlake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
