"""The direct path's query: Spark's ticks, and an end that Spark's available-now trigger cannot give.

Spark keeps checkpoints, retries and scheduling. Its own source of ticks, in the JVM, triggers the
micro-batches, and `planned_offsets` decides what is in them, so that a query needs no Python process but its
driver and its workers. Under `availableNow` the end is fixed once, when the query starts; it runs in steps of
the source's limits, and a watcher stops it when Spark has finished the micro-batch that ends there.
Invariant: a query is only stopped there while it plans nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamlake import clock
from streamlake.errors import InvalidOptionError, SourceError
from streamlake.pipeline.direct.planned_offsets import PlannedOffsets
from streamlake.pipeline.spark.worker_start import start_workers

_TICKS = "rate-micro-batch"
_POLL_SECONDS = 0.05
_ALWAYS = {"processingTime": "0 seconds"}
_UNKNOWN = ("continuous", "realTime")
_BOUNDED = ("availableNow", "once")


Offsets = TypeVar("Offsets", bound=PlannedOffsets[Any])


@dataclass(frozen=True)
class DirectStream(Generic[Offsets]):
    """A streaming DataFrame of ticks, and the offsets that they stand for.

    `trigger` is the one that the query must be started with.
    """

    frame: DataFrame
    trigger: Mapping[str, Any]
    offsets: Offsets


def direct_stream(
    spark: SparkSession,
    offsets_of: Callable[[int, bool], Offsets],
    trigger: Mapping[str, Any] | None = None,
) -> DirectStream[Offsets]:
    """The micro-batches of a source.

    `offsets_of` gives its offsets from where the checkpoint ends, for the trigger's interval in milliseconds
    and whether the query is to end with what is there now. Raises what it raises, and InvalidOptionError for
    a trigger without micro-batches.
    """
    trigger = trigger or _ALWAYS
    if any(name in trigger for name in _UNKNOWN):
        raise InvalidOptionError(
            f"the {next(iter(trigger))} trigger has no micro-batches; use processingTime or availableNow"
        )
    is_bounded = any(trigger.get(name) for name in _BOUNDED)
    trigger = _ALWAYS if is_bounded else trigger
    start_workers(spark)
    offsets = offsets_of(_interval_ms(spark, trigger), is_bounded)
    offsets.close()
    frame = spark.readStream.format(_TICKS).option("rowsPerBatch", 1).option("numPartitions", 1).load()
    return DirectStream(frame, trigger, offsets)


def _interval_ms(spark: SparkSession, trigger: Mapping[str, Any]) -> int:
    jvm: Any = spark._jvm
    parsed = jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(str(trigger["processingTime"]).strip())
    return int(parsed.intervalMs())


class DirectQuery:
    """A SinkQuery that ends when its offsets come to their end; without one it is the query itself.

    Everything that does not concern the end is passed on to the Spark query: id, runId, name, isActive,
    status, lastProgress, recentProgress, explain.
    """

    def __init__(self, query: Any, offsets: PlannedOffsets[Any]) -> None:
        self._query = query
        self._offsets = self.offsets = offsets
        self._watch_error: Exception | None = None
        if offsets.has_end:
            threading.Thread(target=self._watch, name="streamlake-available-now", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def __repr__(self) -> str:
        return repr(self._query)

    def stop(self) -> None:
        """Stop the query; see SinkQuery."""
        self._offsets.interrupt()
        self._query.stop()
        self._offsets.close()

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until what is in the source now has been written. Raises the error that ends the query
        before.
        """
        is_read = self._offsets.now()
        while not is_read(self._offsets.done):
            if not self._query.isActive:
                self.awaitTermination()
                return
            clock.sleep(_POLL_SECONDS)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for the end of the query, or of the data where that has one. Raises the query's error.

        With `timeout` (seconds) returns whether it has ended, else None, as StreamingQuery does.
        """
        try:
            ended = (
                self._query.awaitTermination() if timeout is None else self._query.awaitTermination(timeout)
            )
        except StreamingQueryException:
            if not self._offsets.reached.is_set():
                raise
            ended = None if timeout is None else True
        finally:
            if not self._query.isActive:
                self._offsets.close()
        if self._watch_error is not None:
            raise SourceError(
                f"the query was stopped, because its progress could not be followed: {self._watch_error}"
            ) from self._watch_error
        return ended  # type: ignore[no-any-return]

    def exception(self) -> Any:
        """The error that ended the query, or None; being stopped at the end of the data is none."""
        return None if self._offsets.reached.is_set() else self._query.exception()

    def _watch(self) -> None:
        try:
            while self._query.isActive:
                if self._offsets.reached.wait(_POLL_SECONDS):
                    self._query.end()
                    return
        except Exception as error:  # noqa: BLE001  the thread has no caller to raise to
            self._watch_error = error
            with contextlib.suppress(Exception):
                self._query.stop()
