"""The offsets half of a Kafka source for Spark's driver, and the options that carry its state.

Spark creates one reader in a Python process beside the driver and keeps it for the life of the query; further
readers, created from the same options, only plan and read. So a reader connects on first use and pickles
without its connection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader

from streamlake.source.cluster import KafkaCluster
from streamlake.source.flat_options import source_from_options, source_to_options
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offset_cursor import OffsetCursor
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner

_STATE = ("streamlake.start", "streamlake.known", "streamlake.target")


def stream_options(
    source: KafkaSource,
    *,
    start: SourceOffsets | None = None,
    known: SourceOffsets | None = None,
    target: SourceOffsets | None = None,
) -> dict[str, str]:
    """The options that a reader of `source` is made from; `start`, `known`, `target`: see OffsetCursor."""
    state = dict(zip(_STATE, (start, known, target), strict=True))
    return {
        **source_to_options(source),
        **{name: offsets.to_text() for name, offsets in state.items() if offsets is not None},
    }


def split_options(options: Mapping[str, str]) -> tuple[KafkaSource, dict[str, SourceOffsets]]:
    """The source, and those of `start`, `known` and `target` that the options hold."""
    state = {
        name.rpartition(".")[2]: SourceOffsets.from_json(json.loads(options[name]))
        for name in _STATE
        if name in options
    }
    return source_from_options({key: value for key, value in options.items() if key not in _STATE}), state


class OffsetStreamReader(DataSourceStreamReader):
    """The offsets half of a streaming source; subclasses turn ranges into partitions and read them.

    `state` is passed on to the OffsetCursor.
    """

    def __init__(self, source: KafkaSource, state: Mapping[str, SourceOffsets] | None = None) -> None:
        self.source = source
        self._state = dict(state or {})
        self._cluster: KafkaCluster | None = None
        self._cursor: OffsetCursor | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offsets where the query begins, as JSON values."""
        return self._offsets().initial().to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offsets where the next micro-batch ends, as JSON values."""
        return self._offsets().latest().to_json()

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        """The ranges of the micro-batch between two offsets of the log."""
        return self._offsets().ranges(SourceOffsets.from_json(start), SourceOffsets.from_json(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: Spark's checkpoint is the only place where offsets are kept."""

    def stop(self) -> None:
        """Close the connection to Kafka."""
        if self._cluster is not None:
            self._cluster.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None, "_cursor": None}

    def _offsets(self) -> OffsetCursor:
        if self._cursor is None:
            self._cluster = KafkaCluster(self.source)
            planner = OffsetPlanner(self.source, self._cluster)
            start, known, target = map(self._state.get, ("start", "known", "target"))
            self._cursor = OffsetCursor(planner, start=start, known=known, target=target)
        return self._cursor
