"""What Spark says to a Python source of a micro-batch's limits and of a query's end: from 4.2 on it does.

Before that a query with `availableNow` is one micro-batch. After a crash that is the one which was begun, so
the query ends with rows left to read, and says nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from pyspark.sql import DataFrame

from streamlake.errors import FeatureUnsupportedError

TABLE_FORMAT = "streamlake"
"""The name of the format that reads tables."""
ADMISSION_MODULE = "pyspark.sql.streaming.datasource"
HAS_ADMISSION_CONTROL = find_spec(ADMISSION_MODULE) is not None
DIRECT_PATH = "IcebergSink(...).start(IcebergSource(...)) has it with any Spark"


def check_available_now(frame: DataFrame, trigger: Mapping[str, Any] | None) -> None:
    """Refuse the trigger availableNow for a stream over a table where it ends too early.

    Raises FeatureUnsupportedError.
    """
    if HAS_ADMISSION_CONTROL or not trigger or not trigger.get("availableNow"):
        return
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    if any(_reads_table(leaves.apply(at)) for at in range(leaves.size())):
        raise FeatureUnsupportedError(
            f"{TABLE_FORMAT}: the trigger availableNow needs Spark 4.2: before it, Spark ends such a query "
            "after one micro-batch, which after a crash is the one that was begun; use the trigger "
            f"processingTime, or read the table directly: {DIRECT_PATH}"
        )


def _reads_table(leaf: Any) -> bool:
    return bool(leaf.nodeName() == "StreamingRelationV2" and leaf.sourceName() == TABLE_FORMAT)
