"""The early start of Python workers, while the driver asks Kafka and opens tables for the first tasks.

Place in the flow: beside the start of a query on the direct path. Invariant: whether it succeeds or not, the
query is the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)


def start_workers(spark: SparkSession) -> None:
    """Begin to start a Python worker for every task that runs at the same time; returns at once."""
    threading.Thread(target=_start, args=(spark,), name="streamlake-workers", daemon=True).start()


def _start(spark: SparkSession) -> None:
    try:
        tasks = max(spark.sparkContext.defaultParallelism, 1)
        spark.range(0, tasks, 1, tasks).mapInArrow(_nothing, "id long").collect()
    except Exception as error:  # noqa: BLE001  the session may be ended meanwhile
        _LOG.debug("Python workers were not started ahead: %s", error)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())
