"""A driver on the direct path that dies at a given point: `kafka_driver.py HOME POINT SERVERS TOPIC`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamlake import IcebergSink, KafkaSource
from streamlake.pipeline import sink as sink_module
from tests.crash import crash_points
from tests.helpers.spark import build_session

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS = 2
PER_CHECKPOINT = 8_000
CHECKPOINTS = 5


def run(home: Path, servers: str, topic: str) -> IcebergSink:
    """Everything that the topic holds, from the checkpoint on; small data files, so that a task writes several."""
    source = KafkaSource(
        bootstrap_servers=servers,
        topics=[topic],
        schema="id long, part int, payload string",
        options={"max-offsets-per-trigger": PER_CHECKPOINT},
    )
    sink = IcebergSink(
        str(home / "table"),
        create=True,
        partition_by=["part"],
        properties={"write.target-file-size-bytes": "5000"},
    )
    query = sink.start(source, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    assert query.awaitTermination(120)
    return sink


@dataclass(frozen=True)
class DyingReader:
    """Reads as `read` does, until the record with id `row` comes: see `crash_points.dying_task`."""

    read: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]
    table: Path
    driver: int
    row: int

    def __call__(self, ranges: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield from crash_points.dying_task(self.table, self.driver, self.row)(self.read(ranges))


def main(home: Path, point: str, servers: str, topic: str) -> None:
    build_session(home / "spark")
    if point == crash_points.WRITING:
        row = PER_CHECKPOINT // PARTITIONS * crash_points.CRASHING_CHECKPOINT + 1
        plain = sink_module.range_reader

        def dying(source: KafkaSource) -> Any:
            return DyingReader(plain(source), home / "table", os.getpgrp(), row)

        sink_module.range_reader = dying
    else:
        crash_points.arm(point)
    run(home, servers, topic)


if __name__ == "__main__":
    # The reader travels to the executors by its module's name, which "__main__" is not.
    from tests.crash import kafka_driver

    kafka_driver.main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
