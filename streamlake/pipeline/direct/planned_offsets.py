"""The planning of offsets on the direct path: the driver decides what each micro-batch reads.

Place in the flow: Spark ticks. At each tick this waits until the source has something new and logs where the
micro-batch ends; what lies between is cut into the pieces of its tasks. Waiting is a sleep in the JVM on the
query's own thread, so that stopping the query interrupts it, however it is stopped. Invariants: a replay
reads what the log says; a query that has come to its end plans nothing more, and waits to be stopped.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

from pyspark.sql import DataFrame

from streamlake import clock
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import FencedError, InvalidOptionError
from streamlake.failpoints import failpoint
from streamlake.pipeline.direct.offset_log import Offset, OffsetForm, OffsetLog
from streamlake.pipeline.spark.interruption import stopped_error
from streamlake.pipeline.spark.query_identity import job_of, stream_execution

_SHORTEST_MS = 5
_LONGEST_MS = 100
_REACHED_MS = 200


class PlannedOffsets(ABC, Generic[Offset]):
    """The offsets of one query. `interval_ms`: the source is asked when the clock is at a multiple of it, 0:
    continuously.
    """

    form: OffsetForm[Offset]

    def __init__(self, log: OffsetLog[Offset], interval_ms: int) -> None:
        self._log = log
        self._interval_ms = interval_ms
        self._is_open = False
        self._begin: Offset | None = None
        self._end: Offset | None = None
        self.done: Offset | None = None
        """Where the last micro-batch ends that Spark has finished in this run."""
        self.reached = threading.Event()
        """Set when nothing up to the query's end is left to do."""

    @property
    @abstractmethod
    def has_end(self) -> bool:
        """Whether the query ends by itself."""

    @abstractmethod
    def now(self) -> Callable[[Offset | None], bool]:
        """What says of an offset whether all is read that there is now. Called by threads beside the
        query's.
        """

    @property
    def planned(self) -> Offset | None:
        """Where the micro-batch ends that is being written, or was last; None before the first one."""
        return self._end

    def interrupt(self) -> None:
        """Stop waiting for the end of an outage, because the query is about to be stopped."""

    @abstractmethod
    def close(self) -> None:
        """Close connections; the next use opens others."""

    @abstractmethod
    def _open(self, known: Offset | None) -> None:
        """Go on from the last offset of the log (None: there is none). Called once, by the first plan."""

    @abstractmethod
    def _latest(self) -> Offset:
        """Where the next micro-batch ends; the last offset again when there is nothing new."""

    @abstractmethod
    def _is_done(self, offset: Offset) -> bool:
        """Whether a query with an end has nothing left to read after an offset."""

    def plan(
        self, frame: DataFrame, checkpoint_id: int, while_idle: Callable[[], None] = lambda: None
    ) -> None:
        """Log where the micro-batch ends that Spark has just begun, unless it is logged already.

        May wait until there is something new; `while_idle` is called whenever there is nothing. Raises
        FencedError where another driver has logged it meanwhile, and what `while_idle` raises.
        """
        try:
            self._plan(frame, checkpoint_id, while_idle)
        except BaseException:
            self.close()
            raise

    def _plan(self, frame: DataFrame, checkpoint_id: int, while_idle: Callable[[], None]) -> None:
        before, end = self._end, None
        if not self._is_open:
            # The log may have moved on since this query was created: another driver was still writing it.
            before = self._log.required(checkpoint_id - 1) if checkpoint_id else None
            end = self._log.read(checkpoint_id)
            self._open(end or before)
            self._is_open = True
        self.done = before
        if end is None:
            end = self._next(before, frame, while_idle)
            failpoint("offsets-planned")
            self._log.add(checkpoint_id, end)
            failpoint("offsets-logged")
        self._begin, self._end = before, end

    def confirm(self, identity: CheckpointIdentity) -> None:
        """Raises FencedError where the log differs from what `plan` has decided for the micro-batch."""
        recorded = self.form.of_texts(identity.start_offsets), self.form.of_texts(identity.end_offsets)
        if recorded != (self._begin, self._end):
            raise FencedError(
                "another driver runs the same checkpoint directory: it has written another entry for "
                f"{identity} to the offset log. This one stops, and has read nothing of the checkpoint; make "
                "sure that only one is started"
            )

    def between(self, identity: CheckpointIdentity) -> tuple[Offset | None, Offset]:
        """The offsets of a checkpoint. Raises InvalidOptionError for one of another kind of query."""
        start, end = self.form.of_texts(identity.start_offsets), self.form.of_texts(identity.end_offsets)
        if end is None or (identity.start_offsets and start is None):
            raise InvalidOptionError(
                "the checkpoint was written by another kind of query; use another checkpoint location"
            )
        return start, end

    def _next(self, before: Offset | None, frame: DataFrame, while_idle: Callable[[], None]) -> Offset:
        wait = _Wait(frame, self._interval_ms)
        while True:
            if before is not None and self.has_end and self._is_done(before):
                while_idle()
                self.reached.set()
                wait.sleep(_REACHED_MS)
                continue
            end = self._latest()
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
