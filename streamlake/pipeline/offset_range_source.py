"""The streaming source "streamlake-kafka-ranges": offsets for Spark's log, and no rows.

What the direct path is built on: Spark keeps offsets, checkpoints and scheduling, and asks this source how far there is
something to read. The ranges of a micro-batch are found on the driver from what Spark has logged, see `range_frame`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from streamlake.pipeline.offset_stream import OffsetStreamReader, split_options

RANGES_FORMAT = "streamlake-kafka-ranges"
_DDL = "topic string, partition int, start long, until long"


class OffsetRangeReader(OffsetStreamReader):
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


class OffsetRangeSource(DataSource):
    """Registered by `direct_stream`; its options are those of `stream_options`."""

    @classmethod
    def name(cls) -> str:
        return RANGES_FORMAT

    def schema(self) -> str:
        return _DDL

    def streamReader(self, schema: StructType) -> OffsetRangeReader:  # noqa: N802
        return OffsetRangeReader(*split_options(self.options))
