"""Offset ranges -> rows, inside a task: fetch, decode, hand on. No Spark in here; it runs on the executors.

One call reads the ranges of one Arrow batch in order; calling it again for the same ranges gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamlake.decode.row_decoder import RowDecoder
from streamlake.source.fetcher import fetch_range
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange


@dataclass(frozen=True)
class RangeReader:
    """Reads rows of `source.table_schema` for batches of the schema OFFSET_RANGES."""

    source: KafkaSource

    def __call__(self, ranges: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        decoder = row_decoder(self.source)
        for piece in ranges.to_pylist():
            yield from read_range(self.source, decoder, OffsetRange(**piece))


def range_reader(source: KafkaSource) -> RangeReader:
    """The function that tasks turn ranges into rows with; it pickles. The source's schema must be known.

    Raises InvalidOptionError (also for a json.* option), FeatureUnsupportedError, before anything runs.
    """
    row_decoder(source)
    return RangeReader(source)


def row_decoder(source: KafkaSource) -> RowDecoder:
    """The decoder of a source's records."""
    return RowDecoder(
        source.table_schema, source.metadata_columns, source.format, dict(source.settings.decode)
    )


def read_range(source: KafkaSource, decoder: RowDecoder, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The rows of one range. Raises SourceError, DataLossError, DecodeError."""
    wanted = {"value", *source.metadata_columns.values()}
    for raw in fetch_range(source, piece, wanted):
        rows = decoder.decode(raw)
        if rows.num_rows:
            yield rows
