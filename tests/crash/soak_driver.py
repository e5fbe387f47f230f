"""A driver of the soak: `soak_driver.py HOME SETTINGS`. It follows the folder HOME/landing until it is killed.

SETTINGS is a JSON object: mode, format-version, and `finish`: whether to end when nothing is left. HOME/started
appears when the query runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from streamlake import IcebergSink
from tests.crash.change_log import APPEND, DDL
from tests.crash.matrix_driver import LIGHT, MASTER
from tests.crash.soak_table import LANDING, PIPELINE, STARTED, table_location
from tests.helpers.spark import build_session

FINISH_SECONDS = 300


def main(home: Path, settings: dict[str, Any]) -> None:
    spark = build_session(home / "spark", master=MASTER, extra=LIGHT)
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(home / LANDING))
    finish = settings["finish"]
    query = _sink(home, settings["mode"], settings["format-version"]).start(
        stream,
        checkpoint_location=str(home / "checkpoint"),
        trigger={"availableNow": True} if finish else {"processingTime": "100 milliseconds"},
    )
    (home / STARTED).touch()
    assert query.awaitTermination(FINISH_SECONDS if finish else None), f"not done in {FINISH_SECONDS} s"
    spark.stop()


def _sink(home: Path, mode: str, version: int) -> IcebergSink:
    table: dict[str, Any] = {
        "create": True,
        "format_version": version,
        "partition_by": ["part"],
        "pipeline": PIPELINE,
    }
    if mode == APPEND:
        return IcebergSink(str(table_location(home)), **table)
    return IcebergSink(
        str(table_location(home)),
        mode="upsert",
        key=["id", "part"],
        row_kind="op",
        delete_mode=mode,
        **table,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
