"""The offsets of a query that reads Kafka directly, and the ranges of its tasks; see `PlannedOffsets`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.pipeline.direct.offset_log import OffsetForm, OffsetLog
from streamlake.pipeline.direct.planned_offsets import PlannedOffsets
from streamlake.pipeline.kafka.range_frame import RangeFrame
from streamlake.source.cluster import KafkaCluster
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offset_cursor import OffsetCursor
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner

KAFKA_OFFSETS = OffsetForm(
    "Kafka",
    SourceOffsets.from_json,
    "starting-offsets from the table's last commit (`streamlake status` shows them)",
)


class DirectOffsets(PlannedOffsets[SourceOffsets]):
    """The offsets of one query. Raises SourceError when Kafka does not answer, DataLossError when it no
    longer has what the checkpoint needs.

    `interval_ms`: see PlannedOffsets. `is_bounded`: the query ends with what is there now.
    """

    form = KAFKA_OFFSETS

    def __init__(
        self, source: KafkaSource, log: OffsetLog[SourceOffsets], interval_ms: int, is_bounded: bool
    ) -> None:
        super().__init__(log, interval_ms)
        self._source = source
        self._cluster = KafkaCluster(source)
        self._planner = OffsetPlanner(source, self._cluster)
        known = log.last()
        start = self._planner.initial() if known is None else None
        self.target = self._planner.latest(known or start) if is_bounded else None
        """Where the query ends; None for one without end."""
        self.first = known or start
        """Where this run begins."""
        self._start = start
        self._cursor: OffsetCursor | None = None

    @property
    def has_end(self) -> bool:
        """See PlannedOffsets."""
        return self.target is not None

    def frame(
        self, session: SparkSession, identity: CheckpointIdentity, before: Sequence[OffsetRange] = ()
    ) -> RangeFrame:
        """The ranges of a checkpoint, after those of `before`. Raises InvalidOptionError for a checkpoint of
        another kind of query.
        """
        start, end = self.between(identity)
        start = start or SourceOffsets({})
        ranges = [*self._planner.identified(before, end.topic_ids), *self._planner.ranges(start, end)]
        return RangeFrame(session, ranges, self._source.settings.min_partitions)

    def now(self) -> Callable[[SourceOffsets | None], bool]:
        """See PlannedOffsets; by a connection of its own."""
        with KafkaCluster(self._source) as cluster:
            target = OffsetPlanner(self._source, cluster).latest(self.done)
        return lambda done: done is not None and done.reaches(target)

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        self._cluster.close()

    def _open(self, known: SourceOffsets | None) -> None:
        start = None if known is not None else self._start
        self._cursor = OffsetCursor(
            self._planner, start=start, known=known, target=self.target, idle_seconds=0
        )

    def _latest(self) -> SourceOffsets:
        assert self._cursor is not None
        return self._cursor.latest()

    def _is_done(self, offset: SourceOffsets) -> bool:
        return self.target is not None and offset.reaches(self.target)


def kafka_offsets(
    session: SparkSession, source: KafkaSource, checkpoint_location: str
) -> Callable[[int, bool], DirectOffsets]:
    """What gives the offsets of a query on a checkpoint directory; see `direct_stream`."""
    return lambda interval_ms, is_bounded: DirectOffsets(
        source, OffsetLog(session, checkpoint_location, KAFKA_OFFSETS), interval_ms, is_bounded
    )
