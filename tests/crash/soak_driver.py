"""A driver of the soak: `soak_driver.py HOME SETTINGS`. It follows its input until it is killed.

SETTINGS is a JSON object: mode, format-version, the input's own (landing; or servers, topic, how many records a checkpoint
takes, and on-error), and `finish`: whether to end when nothing is left. HOME/started appears when the query runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from streamlake import IcebergSink
from tests.crash.change_log import APPEND
from tests.crash.matrix_driver import LIGHT, MASTER, input_of
from tests.crash.soak_table import PIPELINE, STARTED, table_location
from tests.helpers.spark import build_session

FINISH_SECONDS = 300


def main(home: Path, settings: dict[str, Any]) -> None:
    spark = build_session(home / "spark", master=MASTER, extra=LIGHT)
    finish = settings["finish"]
    query = _sink(home, settings).start(
        input_of(spark, settings),
        checkpoint_location=str(home / "checkpoint"),
        trigger={"availableNow": True} if finish else {"processingTime": "100 milliseconds"},
    )
    (home / STARTED).touch()
    assert query.awaitTermination(FINISH_SECONDS if finish else None), f"not done in {FINISH_SECONDS} s"
    spark.stop()


def _sink(home: Path, settings: dict[str, Any]) -> IcebergSink:
    mode = settings["mode"]
    table: dict[str, Any] = {
        "create": True,
        "format_version": settings["format-version"],
        "on_error": settings.get("on-error", "fail"),
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
