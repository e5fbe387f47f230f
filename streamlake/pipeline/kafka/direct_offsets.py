"""The planning of offsets on the direct path: the driver decides what each micro-batch reads.

Place in the flow: Spark ticks. At each tick this waits until Kafka has something new, logs where the
micro-batch ends, and cuts what lies between into the ranges of its tasks. Waiting is a sleep in the JVM on
the query's own thread, so that stopping the query interrupts it, however it is stopped. Invariants: a replay
reads what the log says; a query whose target is reached plans nothing more, and waits to be stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake import clock
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.offset_summary import source_offsets
from streamlake.errors import FencedError, InvalidOptionError
from streamlake.pipeline.kafka.offset_log import OffsetLog
from streamlake.pipeline.kafka.range_frame import RangeFrame
from streamlake.pipeline.spark.interruption import stopped_error
from streamlake.pipeline.spark.query_identity import job_of, stream_execution
from streamlake.source.cluster import KafkaCluster
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offset_cursor import OffsetCursor
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner

_SHORTEST_MS = 5
_LONGEST_MS = 100
_REACHED_MS = 200


class DirectOffsets:
    """The offsets of one query. Raises SourceError when Kafka does not answer, DataLossError when it no
    longer has what the checkpoint needs.

    `interval_ms`: Kafka is polled when the clock is at a multiple of it, 0: continuously. `is_bounded`: the
    query ends with what is there now.
    """

    def __init__(self, source: KafkaSource, log: OffsetLog, interval_ms: int, is_bounded: bool) -> None:
        self._source = source
        self._log = log
        self._interval_ms = interval_ms
        self._cluster = KafkaCluster(source)
        self._planner = OffsetPlanner(source, self._cluster)
        known = log.last()
        self._begin: SourceOffsets | None = None
        self._end: SourceOffsets | None = None
        start = self._planner.initial() if known is None else None
        self.target = self._planner.latest(known or start) if is_bounded else None
        """Where the query ends; None for one without end."""
        self.first = known or start
        """Where this run begins."""
        self._start = start
        self._cursor: OffsetCursor | None = None
        self.done: SourceOffsets | None = None
        """Where the last micro-batch ends that Spark has finished in this run."""
        self.reached = threading.Event()
        """Set when nothing up to `target` is left to do."""

    @property
    def planned(self) -> SourceOffsets | None:
        """Where the micro-batch ends that is being written, or was last; None before the first one."""
        return self._end

    def plan(
        self, frame: DataFrame, checkpoint_id: int, while_idle: Callable[[], None] = lambda: None
    ) -> None:
        """Log where the micro-batch ends that Spark has just begun, unless it is logged already.

        May wait until there is something in Kafka; `while_idle` is called whenever there is nothing. Raises
        FencedError where another driver has logged it meanwhile, and what `while_idle` raises.
        """
        try:
            self._plan(frame, checkpoint_id, while_idle)
        except BaseException:
            self.close()
            raise

    def _plan(self, frame: DataFrame, checkpoint_id: int, while_idle: Callable[[], None]) -> None:
        before, end = self._end, None
        if self._cursor is None:
            # The log may have moved on since this query was created: another driver was still writing it.
            before = self._log.required(checkpoint_id - 1) if checkpoint_id else None
            end = self._log.read(checkpoint_id)
            self._cursor = self._new_cursor(end or before)
        self.done = before
        if end is None:
            end = self._next(self._cursor, before, frame, while_idle)
            self._log.add(checkpoint_id, end)
        self._begin, self._end = before, end

    def confirm(self, identity: CheckpointIdentity) -> None:
        """Raises FencedError where the log differs from what `plan` has decided for the micro-batch."""
        recorded = source_offsets(identity.start_offsets), source_offsets(identity.end_offsets)
        if recorded != (self._begin, self._end):
            raise FencedError(
                "another driver runs the same checkpoint directory: it has written another entry for "
                f"{identity} to the offset log. This one stops, and has read nothing of the checkpoint; make "
                "sure that only one is started"
            )

    def frame(
        self, session: SparkSession, identity: CheckpointIdentity, before: Sequence[OffsetRange] = ()
    ) -> RangeFrame:
        """The ranges of a checkpoint, after those of `before`. Raises InvalidOptionError for a checkpoint of
        another kind of query.
        """
        start, end = source_offsets(identity.start_offsets), source_offsets(identity.end_offsets)
        if end is None or (identity.start_offsets and start is None):
            raise InvalidOptionError(
                "the checkpoint was written by another kind of query; use another checkpoint location"
            )
        start = start or SourceOffsets({})
        ranges = [*self._planner.identified(before, end.topic_ids), *self._planner.ranges(start, end)]
        return RangeFrame(session, ranges, self._source.settings.min_partitions)

    def now(self) -> SourceOffsets:
        """The end of what can be read now, by a connection of its own: for threads beside the query's."""
        with KafkaCluster(self._source) as cluster:
            return OffsetPlanner(self._source, cluster).latest(self.done)

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        self._cluster.close()

    def _new_cursor(self, known: SourceOffsets | None) -> OffsetCursor:
        start = None if known is not None else self._start
        return OffsetCursor(self._planner, start=start, known=known, target=self.target, idle_seconds=0)

    def _next(
        self,
        cursor: OffsetCursor,
        before: SourceOffsets | None,
        frame: DataFrame,
        while_idle: Callable[[], None],
    ) -> SourceOffsets:
        wait = _Wait(frame, self._interval_ms)
        while True:
            if before is not None and self.target is not None and before.reaches(self.target):
                while_idle()
                self.reached.set()
                wait.sleep(_REACHED_MS)
                continue
            end = cursor.latest()
            if end != before:
                return end
            while_idle()
            wait.until_next()


class _Wait:
    """Sleeps in the JVM until it is time to poll again. Raises the interruption of a stopped query."""

    def __init__(self, frame: DataFrame, interval_ms: int) -> None:
        session = frame.sparkSession
        self._sleep: Any = session._jvm.java.lang.Thread.sleep
        self._execution = stream_execution(session, job_of(session) or "")
        self._interval_ms = interval_ms
        self._ms = _SHORTEST_MS

    def until_next(self) -> None:
        if self._interval_ms:
            self.sleep(self._interval_ms - clock.now_ms() % self._interval_ms)
        else:
            self.sleep(self._ms)
            self._ms = min(2 * self._ms, _LONGEST_MS)

    def sleep(self, ms: int) -> None:
        self._sleep(ms)
        # Where Python's threads are not those of the JVM, a stop interrupts another thread than the sleeping
        # one.
        if not self._execution.isActive():
            raise stopped_error()
