"""Starting a streaming query with a sink, and the query object that a user gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from streamlake.errors import InvalidOptionError

ProcessBatch = Callable[[DataFrame, int], None]


def start_query(
    process: ProcessBatch,
    frame: DataFrame,
    *,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None,
    query_name: str | None,
    output_mode: str,
    error: Callable[[], BaseException | None],
) -> SinkQuery:
    """Start `frame` into `process`. `error` tells the sink's own error once the query has failed."""
    if not frame.isStreaming:
        raise InvalidOptionError(
            "the DataFrame is not a stream: read it with spark.readStream, so that there is a checkpoint to restart from"
        )
    writer = frame.writeStream.foreachBatch(process).outputMode(output_mode)
    writer = writer.option("checkpointLocation", str(checkpoint_location))
    if trigger:
        writer = writer.trigger(**trigger)
    if query_name:
        writer = writer.queryName(query_name)
    return SinkQuery(writer.start(), error)


class SinkQuery:
    """A StreamingQuery that raises the sink's own error rather than Spark's wrapping of it."""

    def __init__(self, query: Any, error: Callable[[], BaseException | None]) -> None:
        self._query = query
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for the end, as StreamingQuery does. Raises the sink's error when that is why the query ended."""
        try:
            if timeout is None:
                self._query.awaitTermination()
                return None
            return bool(self._query.awaitTermination(timeout))
        except StreamingQueryException as failure:
            own = self._error()
            if own is None:
                raise
            raise own from failure
