"""The direct path's query: Spark's ticks, and an end that Spark's available-now trigger cannot give.

Spark keeps checkpoints, retries and scheduling. Its own source of ticks, in the JVM, triggers the
micro-batches, and `direct_offsets` decides what is in them, so that a query needs no Python process but its
driver and its workers. Under `availableNow` the end is fixed once, when the query starts; it runs in steps of
max-offsets-per-trigger, and a watcher stops it when Spark has finished the micro-batch that ends there.
Invariant: a query is only stopped there while it plans nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamlake import clock
from streamlake.errors import InvalidOptionError, SourceError
from streamlake.pipeline.kafka.direct_offsets import DirectOffsets
from streamlake.pipeline.kafka.offset_log import OffsetLog
from streamlake.pipeline.spark.worker_start import start_workers
from streamlake.source.kafka_source import KafkaSource

_TICKS = "rate-micro-batch"
_POLL_SECONDS = 0.05
_ALWAYS = {"processingTime": "0 seconds"}
_UNKNOWN = ("continuous", "realTime")
_BOUNDED = ("availableNow", "once")


@dataclass(frozen=True)
class DirectStream:
    """A streaming DataFrame of ticks, and the offsets that they stand for.

    `trigger` is the one that the query must be started with.
    """

    frame: DataFrame
    trigger: Mapping[str, Any]
    offsets: DirectOffsets


def direct_stream(
    spark: SparkSession,
    source: KafkaSource,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None = None,
) -> DirectStream:
    """The micro-batches of `source`, from where the checkpoint ends.

    Raises SourceError when Kafka does not answer, DataLossError when it no longer has what the checkpoint
    needs, InvalidOptionError for a trigger without micro-batches.
    """
    trigger = trigger or _ALWAYS
    if any(name in trigger for name in _UNKNOWN):
        raise InvalidOptionError(
            f"the {next(iter(trigger))} trigger has no micro-batches; use processingTime or availableNow"
        )
    is_bounded = any(trigger.get(name) for name in _BOUNDED)
    trigger = _ALWAYS if is_bounded else trigger
    start_workers(spark)
    log = OffsetLog(spark, checkpoint_location)
    offsets = DirectOffsets(source, log, _interval_ms(spark, trigger), is_bounded)
    offsets.close()
    frame = spark.readStream.format(_TICKS).option("rowsPerBatch", 1).option("numPartitions", 1).load()
    return DirectStream(frame, trigger, offsets)


def _interval_ms(spark: SparkSession, trigger: Mapping[str, Any]) -> int:
    jvm: Any = spark._jvm
    parsed = jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(str(trigger["processingTime"]).strip())
    return int(parsed.intervalMs())


class DirectQuery:
    """A SinkQuery that ends when its offsets reach their target; without one it is the query itself.

    Everything that does not concern the end is passed on to the Spark query: id, runId, name, isActive,
    status, lastProgress, recentProgress, explain.
    """

    def __init__(self, query: Any, offsets: DirectOffsets) -> None:
        self._query = query
        self._offsets = self.offsets = offsets
        self._watch_error: Exception | None = None
        if offsets.target is not None:
            threading.Thread(target=self._watch, name="streamlake-available-now", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def __repr__(self) -> str:
        return repr(self._query)

    def stop(self) -> None:
        """Stop the query; see SinkQuery."""
        self._query.stop()
        self._offsets.close()

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until what is in Kafka now has been written. Raises the error that ends the query before."""
        target = self._offsets.now()
        while self._offsets.done is None or not self._offsets.done.reaches(target):
            if not self._query.isActive:
                self.awaitTermination()
                return
            clock.sleep(_POLL_SECONDS)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for the end of the query, or of the data with a target. Raises the query's error.

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
        """The error that ended the query, or None; being stopped at the target is no error."""
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
