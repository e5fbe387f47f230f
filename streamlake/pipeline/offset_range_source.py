"""The streaming source "streamlake-kafka-ranges": one row per offset range, and no record.

What the direct path is built on: Spark keeps offsets, checkpoints, retries and scheduling, and the task that gets a
row fetches the records itself. Each range is a Spark partition of its own, so ranges are read in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from streamlake.pipeline.offset_stream import OffsetStreamReader, split_options
from streamlake.source.offsets import OffsetRange

RANGES_FORMAT = "streamlake-kafka-ranges"
RANGES_DDL = "topic string, partition int, start long, until long"


@dataclass
class RangePartition(InputPartition):
    """One range, on its way to the task that reads it."""

    range: OffsetRange


class OffsetRangeReader(OffsetStreamReader):
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [RangePartition(piece) for piece in self.ranges(start, end)]

    def read(self, partition: RangePartition) -> Iterator[tuple[Any, ...]]:
        piece = partition.range
        yield piece.topic, piece.partition, piece.start, piece.until


class OffsetRangeSource(DataSource):
    """Registered by `direct_stream`; its options are those of `stream_options`."""

    @classmethod
    def name(cls) -> str:
        return RANGES_FORMAT

    def schema(self) -> str:
        return RANGES_DDL

    def streamReader(self, schema: StructType) -> OffsetRangeReader:  # noqa: N802
        return OffsetRangeReader(*split_options(self.options))
