"""The stream that is crashed: a folder of Parquet files, one a checkpoint, into a partitioned table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake import IcebergSink
from tests.helpers.file_times import set_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id bigint, part int, payload string"
ROWS_PER_FILE = 80_000
FILES = 5


def land(home: Path, first: int = 0, files: int = FILES) -> None:
    """Put `files` files of rows into the folder; ids count up through all of them."""
    folder = home / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "part": pa.array((value % 2 for value in ids), pa.int32()),
                "payload": pa.array(f"{value * 2654435761 % 2**32:x}" for value in ids),
            }
        )
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        set_turn(path, number)


def run(spark: SparkSession, home: Path) -> IcebergSink:
    """Stream everything that has landed, from the checkpoint on; small data files and little memory, so that a task
    finishes files while it still reads."""
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(home / "landing"))
    sink = IcebergSink(
        str(home / "table"),
        create=True,
        partition_by=["part"],
        properties={
            "write.target-file-size-bytes": "20000",
            "write.distribution-mode": "none",
            "streamlake.write.memory-budget-bytes": "1048576",
        },
    )
    start: dict[str, Any] = {
        "checkpoint_location": str(home / "checkpoint"),
        "trigger": {"availableNow": True},
    }
    sink.start(frame, **start).awaitTermination()
    return sink
