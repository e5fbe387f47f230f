"""Starting a streaming query with a sink, and the query object that a user gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from streamlake.errors import FencedError, InvalidOptionError
from streamlake.pipeline.spark.admission_control import check_available_now
from streamlake.pipeline.spark.spark_traces import plain, traces_wanted
from streamlake.pipeline.spark.worker_python import unusable_workers

_LOG_TAKEN = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected")
"""Spark's words where an entry that a query was about to write to its offset log or commit log exists
already."""

ProcessBatch = Callable[[DataFrame, int], None]


class SinkState(Protocol):
    """The part of a sink that the query object needs."""

    @property
    def error(self) -> BaseException | None:
        """The sink's own error, once the query has failed."""
        ...

    def interrupt(self, job_id: str) -> None:
        """Stop waiting for commits and for the end of an outage, because the query is about to be stopped."""
        ...

    def finish(self, job_id: str) -> BaseException | None:
        """After the query's end, wait until what is staged is committed or cannot be; returns the error."""
        ...


def start_query(
    process: ProcessBatch,
    frame: DataFrame,
    *,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None,
    query_name: str | None,
    output_mode: str,
    sink: SinkState,
) -> SinkQuery:
    """Start a query that passes the micro-batches of `frame` to `process`, which writes to `sink`.

    Raises InvalidOptionError where `frame` is not a stream, FeatureUnsupportedError where it reads a table
    and Spark cannot keep the trigger.
    """
    if not frame.isStreaming:
        raise InvalidOptionError(
            "the DataFrame is not a stream: read it with spark.readStream, so that there is a checkpoint to "
            "restart from"
        )
    check_available_now(frame, trigger)
    writer = frame.writeStream.foreachBatch(process).outputMode(output_mode)
    writer = writer.option("checkpointLocation", str(checkpoint_location))
    if trigger:
        writer = writer.trigger(**trigger)
    if query_name:
        writer = writer.queryName(query_name)
    return SinkQuery(writer.start(), sink)


class SinkQuery:
    """A StreamingQuery that raises the sink's own error instead of Spark's wrapping of it. It has ended only
    when nothing of it is still being committed.
    """

    def __init__(self, query: Any, sink: SinkState) -> None:
        self._query = query
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def __repr__(self) -> str:
        state = "running" if self._query.isActive else "ended"
        return f"SinkQuery({self._query.name or str(self._query.id)!r}, {state}, {self._sink!r})"

    def stop(self) -> None:
        """Stop the query, as StreamingQuery does. What is staged is committed, unless that takes waiting:
        then the next start commits it.
        """
        self._sink.interrupt(str(self._query.id))
        self._query.stop()
        self._sink.finish(str(self._query.id))

    def end(self) -> None:
        """Stop the query because its source has ended: first commit what is staged, with outage retry."""
        self._sink.finish(str(self._query.id))
        self._query.stop()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for the end, as StreamingQuery does. Raises the sink's error where it ended the query."""
        try:
            if timeout is None:
                self._query.awaitTermination()
            elif not self._query.awaitTermination(timeout):
                return False
        except StreamingQueryException as failure:
            self._sink.finish(str(self._query.id))
            error = self._sink.error or _fenced(failure) or unusable_workers(str(failure))
            if error is None:
                raise
            raise plain(error) from (failure if traces_wanted() else None)
        error = self._sink.finish(str(self._query.id))
        if error is not None:
            raise error
        return None if timeout is None else True


def _fenced(failure: StreamingQueryException) -> FencedError | None:
    """The error of a query whose successor is so far ahead that Spark's own log refuses an entry."""
    text = str(failure)
    if not any(words in text for words in _LOG_TAKEN):
        return None
    return FencedError(
        "another driver runs the same checkpoint directory, or has replaced this one: Spark found an entry "
        "in its log that this driver was about to write. This one stops, and has committed nothing that the "
        "other one does not know of; make sure that only one is started"
    )
