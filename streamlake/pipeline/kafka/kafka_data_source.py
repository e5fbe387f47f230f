r"""The streaming source "streamlake-kafka": records as rows of a DataFrame, to apply SQL before the sink.

    df = spark.readStream.format("streamlake-kafka").option("bootstrap-servers", "...") \
        .option("topics", "orders").option("schema", "id long, at timestamp") \
        .option("starting-offsets", "earliest").load()

Options are those of KafkaSource, and its arguments under the names bootstrap-servers, topics, topic-pattern,
schema, format and include. Without a schema, and with format "json", one is inferred; without either, rows
are Kafka's own columns (key, value, topic, partition, offset, timestamp, headers).

Spark has no admission control for a Python source: with max-offsets-per-trigger an `availableNow` query ends
after one step. Leave the limit out there, or use the direct path, which goes on to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.kafka.offset_stream import OffsetStreamReader
from streamlake.pipeline.kafka.sampled_schema import with_inferred_schema
from streamlake.pipeline.spark.spark_types import FrameTypes, frame_schema
from streamlake.source.flat_options import source_from_options
from streamlake.source.kafka_source import METADATA_TYPES, KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.schema import Schema, assign_fresh_ids
from streamlake.tasks.direct_reader import read_range, row_decoder

KAFKA_FORMAT = "streamlake-kafka"
_ARROW_ROWS = 10_000


def register(spark: SparkSession) -> None:
    """Register the format "streamlake-kafka" with the session; registering it again is harmless.

    Only needed where streamlake is not installed as a package (see `spark_lookup`).
    """
    spark.dataSource.register(KafkaDataSource)


@dataclass
class RecordPartition(InputPartition):
    """One range, read by one task."""

    range: OffsetRange


class KafkaRecordReader(OffsetStreamReader):
    """Reads ranges as Arrow batches of `source.table_schema`."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition per range between two offsets."""
        return [RecordPartition(piece) for piece in self.ranges(start, end)]

    def read(self, partition: RecordPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in batches of at most 10,000."""
        for rows in read_range(self.source, row_decoder(self.source), partition.range):
            # Spark reads many small Arrow batches faster than few large ones.
            for at in range(0, rows.num_rows, _ARROW_ROWS):
                yield rows.slice(at, _ARROW_ROWS)


class KafkaDataSource(DataSource):
    """The data source that Spark finds itself, or that `register` adds, made from the options of `load()`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return KAFKA_FORMAT

    def schema(self) -> SparkStruct:
        """The columns, declared or inferred. Raises FeatureUnsupportedError for a type that Spark lacks."""
        source = self._source()
        known = source if source.schema is not None else with_inferred_schema(source)
        return frame_schema(_for_spark(known).table_schema)

    def streamReader(self, schema: SparkStruct) -> KafkaRecordReader:  # noqa: N802
        """The reader of records with the columns of `schema`."""
        source = self._source()
        if source.format != "raw":
            # The columns that Spark planned with: inferred once, or given with `.schema(...)`.
            source = source.with_schema(schema)
        return KafkaRecordReader(_for_spark(source))

    def _source(self) -> KafkaSource:
        source = source_from_options(self.options)
        if source.has_row_kinds:
            what = f"the format '{source.format}'" if source.is_envelope else "null-value=delete"
            raise InvalidOptionError(
                f"{KAFKA_FORMAT}: {what} is read by "
                "IcebergSink.start(KafkaSource(...)) alone, which does what its changes say"
            )
        if source.settings.partial_update:
            raise InvalidOptionError(
                f"{KAFKA_FORMAT}: partial-update needs to know the rows that are replaced: use "
                "IcebergSink.start(KafkaSource(...))"
            )
        if source.format == "raw" and "include" not in self.options:
            return replace(source, include=tuple(METADATA_TYPES))
        return source


def _for_spark(source: KafkaSource) -> KafkaSource:
    """The source with types that Spark has: uuid as text. Raises FeatureUnsupportedError for others."""
    assert isinstance(source.schema, Schema)
    if source.format == "raw":
        return source
    ids = iter(range(1, 1_000_000))
    fields = FrameTypes(KAFKA_FORMAT, "declare it as string or long").fields(source.schema)
    return source.with_schema(Schema(assign_fresh_ids(fields, lambda: next(ids))))
