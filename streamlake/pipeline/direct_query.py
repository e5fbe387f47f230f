"""The direct path's query: a stream of offset ranges, and an end that Spark's available-now trigger cannot give.

Under `availableNow` a Python source that limits itself ends after its first micro-batch. So the end offsets are fixed
here, once, when the query starts; the query runs on a processing-time trigger in steps of max-offsets-per-trigger; and
a watcher stops it when the checkpoint has reached them. Invariant: the query is stopped only after Spark has reported
a micro-batch that ends at the target, when nothing is left that it could be doing; a session that keeps no reports is
asked for what it has committed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamlake import clock
from streamlake.errors import InvalidOptionError, SourceError
from streamlake.pipeline.checkpoint_offsets import last_offsets_of
from streamlake.pipeline.offset_range_source import RANGES_FORMAT, OffsetRangeSource
from streamlake.pipeline.offset_stream import stream_options
from streamlake.pipeline.range_frame import DirectRanges
from streamlake.pipeline.task_outcome import raised_on_executor
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import SourceOffsets

_POLL_SECONDS = 0.05
_REPORTS_KEPT = 2
"""From this `spark.sql.streaming.numRecentProgressUpdates` on Spark has a last report; below, it drops each at once."""


@dataclass(frozen=True)
class DirectStream:
    """A streaming DataFrame without rows, whose offsets are a source's, and how to run it.

    `trigger` is what the query must be started with; `target` is where it ends, None for a query without end; `ranges`
    says what each of its micro-batches reads.
    """

    frame: DataFrame
    trigger: Mapping[str, Any] | None
    target: SourceOffsets | None
    ranges: DirectRanges


def direct_stream(
    spark: SparkSession,
    source: KafkaSource,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None = None,
) -> DirectStream:
    """The offsets of `source` as a stream that goes on where the checkpoint stands.

    Raises SourceError when Kafka does not answer, DataLossError when it no longer has what the checkpoint needs.
    """
    if trigger and "continuous" in trigger:
        raise InvalidOptionError(
            "the continuous trigger has no micro-batches; use processingTime or availableNow"
        )
    known = last_offsets_of(spark, checkpoint_location)
    start = target = None
    ranges = DirectRanges(source)
    planner = ranges.planner
    try:
        if known is None:
            start = planner.initial()
        if trigger and trigger.get("availableNow"):
            target = planner.latest(known or start)
            # With nothing left but perhaps a micro-batch to run again, Spark's own trigger ends by itself.
            here = known or start
            stepwise = here is not None and not here.reaches(target)
            trigger = {"processingTime": "0 seconds"} if stepwise else trigger
    finally:
        ranges.close()
    spark.dataSource.register(OffsetRangeSource)
    options = stream_options(source, start=start, known=known, target=target)
    frame = spark.readStream.format(RANGES_FORMAT).options(**options).load()
    return DirectStream(frame, trigger, target, ranges)


class DirectQuery:
    """A SinkQuery that ends at `target`; without one it is the query itself.

    Everything but the end is asked of the Spark query: id, runId, name, isActive, status, lastProgress,
    recentProgress, processAllAvailable, stop, explain. A failure is raised as the streamlake error that caused it.
    """

    def __init__(self, query: Any, target: SourceOffsets | None) -> None:
        self._query = query
        self._target = target
        self._reached = threading.Event()
        self._watch_error: Exception | None = None
        if target is not None:
            threading.Thread(target=self._watch, name="streamlake-available-now", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for the end of the query: of the data when it has a target. Raises the error that ended it.

        With `timeout` (seconds) returns whether it has ended, else None, as StreamingQuery does.
        """
        try:
            ended = (
                self._query.awaitTermination() if timeout is None else self._query.awaitTermination(timeout)
            )
        except StreamingQueryException as failure:
            if not self._reached.is_set():
                own = raised_on_executor(failure)
                if own is None:
                    raise
                raise own from failure
            ended = None if timeout is None else True
        if self._watch_error is not None:
            raise SourceError(
                f"the query was stopped, because its progress could not be followed: {self._watch_error}"
            ) from self._watch_error
        return ended  # type: ignore[no-any-return]

    def exception(self) -> Any:
        """The error that ended the query, or None; being stopped at the target is no error."""
        return None if self._reached.is_set() else self._query.exception()

    def _watch(self) -> None:
        try:
            while self._query.isActive:
                if self._at_target():
                    self._reached.set()
                    self._query.end()
                    return
                clock.sleep(_POLL_SECONDS)
        except Exception as error:  # the thread has nobody to raise to
            self._watch_error = error
            with contextlib.suppress(Exception):
                self._query.stop()

    def _at_target(self) -> bool:
        text = self._reported_end()
        if text is None or self._target is None:
            return False
        return SourceOffsets.from_json(json.loads(text)).reaches(self._target)

    def _reported_end(self) -> str | None:
        """Where the last micro-batch that is done has ended, in JSON; None before there is one."""
        # PySpark's own progress object shows offsets as the text of a Python dict; the JVM has the JSON.
        query = self._query._jsq
        progress = query.lastProgress()
        if progress is not None:
            text = progress.sources()[0].endOffset()
            return None if text in (None, "", "null") else str(text)
        execution = query.streamingQuery()
        if execution.sparkSession().sessionState().conf().streamingProgressRetention() >= _REPORTS_KEPT:
            return None
        done = execution.committedOffsets().values().headOption()
        return str(done.get().json()) if done.isDefined() else None
