"""The streaming source "streamlake-kafka-ranges": one row per offset range, and no record.

What the direct path is built on: Spark keeps offsets, checkpoints, retries and scheduling, and the task that gets a
row fetches the records itself. A range is a Spark partition of its own, so ranges are read in parallel; of many small ones
several share a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from streamlake.pipeline.offset_stream import OffsetStreamReader, split_options
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, SourceOffsets, grouped

RANGES_FORMAT = "streamlake-kafka-ranges"
TASKS = "streamlake.tasks"
"""The option with the number of tasks that run at the same time."""
RANGES_DDL = "topic string, partition int, start long, until long"


@dataclass
class RangePartition(InputPartition):
    """Ranges on their way to the task that reads them, one after the other."""

    ranges: list[OffsetRange]


class OffsetRangeReader(OffsetStreamReader):
    """`tasks`: how many run at the same time; see `grouped`."""

    def __init__(self, source: KafkaSource, state: Mapping[str, SourceOffsets], tasks: int) -> None:
        super().__init__(source, state)
        self._tasks = max(tasks, source.settings.min_partitions or 1)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [RangePartition(group) for group in grouped(self.ranges(start, end), self._tasks)]

    def read(self, partition: RangePartition) -> Iterator[tuple[Any, ...]]:
        for piece in partition.ranges:
            yield piece.topic, piece.partition, piece.start, piece.until


class OffsetRangeSource(DataSource):
    """Registered by `direct_stream`; its options are those of `stream_options`."""

    @classmethod
    def name(cls) -> str:
        return RANGES_FORMAT

    def schema(self) -> str:
        return RANGES_DDL

    def streamReader(self, schema: StructType) -> OffsetRangeReader:  # noqa: N802
        options = dict(self.options)
        tasks = int(options.pop(TASKS))
        return OffsetRangeReader(*split_options(options), tasks)
