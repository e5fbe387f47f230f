"""The stream of a driver that stands still: a few rows a checkpoint, appended or upserted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake import IcebergSink
from tests.helpers.file_times import set_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id bigint, v string"
ROWS = 20
STANDING = 1
"""The checkpoint that is staged and not committed when the driver stands still."""
FENCED = 7
"""What the driver exits with when it was told that another one has taken over."""


def land(home: Path, files: int) -> None:
    """Put files into the folder; in each, half of the keys are new and half have come before."""
    folder = home / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        ids = range(number * ROWS // 2, number * ROWS // 2 + ROWS)
        table = pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{number}-{at}" for at in ids]})
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        set_turn(path, number)


def expected(mode: str, files: int) -> list[tuple[int, str]]:
    """The rows of the table after so many files, sorted."""
    rows = [
        (at, f"{number}-{at}")
        for number in range(files)
        for at in range(number * ROWS // 2, number * ROWS // 2 + ROWS)
    ]
    return sorted(rows) if mode == "append" else sorted(dict(rows).items())


def run(spark: SparkSession, home: Path, mode: str) -> IcebergSink:
    """Stream what has landed, from the checkpoint on."""
    upserts: dict[str, Any] = {"key": ["id"]} if mode == "upsert" else {}
    sink = IcebergSink(str(home / "table"), mode=mode, create=True, pipeline="p", **upserts)
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(home / "landing"))
    query = sink.start(frame, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()
    return sink
