"""The offset ranges of a micro-batch, found on the driver and handed to its tasks with their code.

Place in the flow: Spark's log says between which offsets a micro-batch is; the planner cuts that into ranges here, and the
tasks of the direct path get them without a source's own read stage before theirs, which would cost a Python worker per
core. Invariant: a replay gets the same records, in the same order of ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.offset_summary import source_offsets
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.intake import Batches
from streamlake.records import OFFSET_RANGES
from streamlake.source.cluster import KafkaCluster
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, SourceOffsets, grouped
from streamlake.source.planner import OffsetPlanner

Task = Callable[[Batches], Batches]


class DirectRanges:
    """What the micro-batches of one query read. Connects on first use; `close` gives the connection back."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._cluster = KafkaCluster(source)
        self._planner = OffsetPlanner(source, self._cluster)

    @property
    def planner(self) -> OffsetPlanner:
        """What says where a query begins and ends."""
        return self._planner

    def frame(
        self, session: SparkSession, identity: CheckpointIdentity, before: Sequence[OffsetRange] = ()
    ) -> RangeFrame:
        """The ranges of a checkpoint, behind those of `before`. Raises SourceError when Kafka does not answer, DataLossError when it no longer has
        what the checkpoint needs, InvalidOptionError for a checkpoint of another kind of query."""
        end = source_offsets(identity.end_offsets)
        if end is None:
            raise InvalidOptionError(
                "the checkpoint was written by another kind of query; use another checkpoint location"
            )
        start = source_offsets(identity.start_offsets) or SourceOffsets({})
        ranges = [*before, *self._planner.ranges(start, end)]
        return RangeFrame(session, ranges, self._source.settings.min_partitions)

    def close(self) -> None:
        self._cluster.close()


class RangeFrame:
    """Ranges as the input of tasks: a range a task, and of many small ones several; see `grouped`. They keep their order:
    an earlier range is in an earlier partition, or before in the same."""

    def __init__(
        self, session: SparkSession, ranges: Sequence[OffsetRange], min_partitions: int | None = None
    ) -> None:
        self.session = session
        tasks = max(session.sparkContext.defaultParallelism, min_partitions or 1, 1)
        self._groups = tuple(tuple(group) for group in grouped(ranges, tasks))

    def tasks(self, task: Task, ddl: str) -> DataFrame:
        """The rows, of the schema `ddl`, that `task` makes of batches of the schema OFFSET_RANGES."""
        count = len(self._groups)
        numbers = self.session.range(0, count, 1, max(count, 1))
        return numbers.mapInArrow(_OfGroups(task, self._groups), ddl)


@dataclass(frozen=True)
class _OfGroups:
    """Gives a task the ranges whose numbers it is given."""

    task: Task
    groups: tuple[tuple[OffsetRange, ...], ...]

    def __call__(self, batches: Batches) -> Batches:
        return self.task(
            _batch(self.groups[number]) for batch in batches for number in batch.column(0).to_pylist()
        )


def _batch(ranges: Sequence[OffsetRange]) -> pa.RecordBatch:
    rows = [(piece.topic, piece.partition, piece.start, piece.until) for piece in ranges]
    columns = [
        pa.array(list(column), part.type)
        for column, part in zip(zip(*rows, strict=True), OFFSET_RANGES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OFFSET_RANGES)
