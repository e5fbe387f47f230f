"""A driver whose writer tasks are killed in their first attempt: `attempts_driver.py HOME`. Spark runs them again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from streamlake import IcebergSink, create_table
from tests.crash import stream
from tests.helpers.spark import QUICK, build_session

if TYPE_CHECKING:
    import pyarrow as pa


EARLY_FILES = {"write.target-file-size-bytes": "20000", "streamlake.write.memory-budget-bytes": "1048576"}
"""A task finishes files while it still reads."""
SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
KILLED_AT = 15


def killed_once(table: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A `mapInArrow` function that passes rows on; the first attempt of each task is killed once it has a file."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        mine = f"data/**/{context.partitionId():05d}-{context.taskAttemptId()}-*.parquet"
        for number, batch in enumerate(batches):
            if context.attemptNumber() == 0 and number == KILLED_AT:
                deadline = time.monotonic() + 10
                while time.monotonic() < deadline and not list(table.glob(mine)):
                    time.sleep(0.02)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return task


def main(home: Path) -> None:
    spark = build_session(home / "spark", master="local[2,4]", extra={**QUICK, **SMALL_BATCHES})
    location = str(home / "table")
    create_table(location, stream.DDL, properties=EARLY_FILES)
    frame = spark.readStream.schema(stream.DDL).option("maxFilesPerTrigger", 1).parquet(str(home / "landing"))
    query = IcebergSink(location).start(
        frame.mapInArrow(killed_once(home / "table"), stream.DDL),
        checkpoint_location=str(home / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
