"""Reads offset ranges inside a task: fetches the records, decodes them and gives rows. It runs without Spark.

One call reads the ranges of one Arrow batch in order. Calling it again for the same ranges gives the same
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from streamlake.decode.cdc.change_rows import ChangeRows
from streamlake.decode.cdc.row_kinds import with_row_kind
from streamlake.decode.cdc.source_tables import SourceTables
from streamlake.decode.null_values import DeletingDecoder
from streamlake.decode.row_decoder import RowDecoder
from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.watched_records import watching_decoder
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.records import RAW_RECORDS, ROW_KIND
from streamlake.source.fetcher import fetch_range
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.source.source_options import REJECT_NULLS
from streamlake.spec.types.schema import Schema
from streamlake.tasks.asking_decoder import AskingDecoder, WrittenRows
from streamlake.tasks.record_screen import RecordScreen, RejectRules, RowScreen
from streamlake.tasks.watermarks import require_watermark_column

See = Callable[[Decoded], None]


def not_seen(decoded: Decoded) -> None:
    """The `see` of readers that only want the rows."""


@dataclass(frozen=True)
class RangeReader:
    """Reads rows of `source.table_schema`, for batches of the schema OFFSET_RANGES.

    `key`, `watch`, `routes`: see `row_decoder`. `sources` are the recorded source tables of topics, see
    `source_tables`; for a topic that is not among them the driver is asked (None: nothing is recorded).
    """

    source: KafkaSource
    key: tuple[str, ...] = ()
    watch: Watch | None = None
    routes: tuple[str, ...] = ()
    sources: Mapping[str, str] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows; with deletes or partial updates, any column may be null."""
        columns = schema_to_arrow(self.source.table_schema, field_ids=False)
        if not self.source.has_row_kinds and not self.source.settings.partial_update:
            return columns
        return pa.schema([part.with_nullable(True) for part in columns])

    def following(self, table: Schema, row_kind: str | None, watch: Watch | None) -> RangeReader:
        """The reader for the table's current columns; `row_kind` is the stream's column with row kinds."""
        source = self.source.with_schema(with_row_kind(table, row_kind))
        return replace(self, source=source, watch=watch)

    @property
    def watermark_column(self) -> str | None:
        """The column whose newest values make the watermark; None: the records' timestamps make it."""
        return self.source.settings.watermark_column

    def rows(self, piece: OffsetRange, see: See = not_seen) -> Iterator[pa.RecordBatch]:
        """The rows of one range; `see` is called with each batch.

        Raises SourceError, DataLossError, DecodeError.
        """
        return read_range(self.source, self._decoder(piece), piece, see)

    def decoded(
        self,
        piece: OffsetRange,
        see: See = not_seen,
        *,
        keep_rejects: bool = False,
        keep_records: bool = False,
        written: WrittenRows | None = None,
    ) -> Iterator[Decoded]:
        """The batches of one range.

        With `keep_rejects` the result has the records that cannot be decoded; with `keep_records` raw batches
        have all their parts. `written`: see AskingDecoder. Raises SourceError, DataLossError, DecodeError.
        """
        decoder = self._decoder(piece, written)
        parts = RAW_RECORDS.names if keep_records else parts_read(self.source)
        return _decoded(self.source, partial(decoder.decode, keep_rejects=keep_rejects), piece, parts, see)

    def screened(
        self, piece: OffsetRange, rules: RejectRules, see: See = not_seen
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """The rows of one range that fit the table, each batch with its rejects.

        Rejects are rows of the rejects table (None: there are none). Raises SourceError, DataLossError,
        TooManyRejectsError.
        """
        screen = RecordScreen(self._decoder(piece, RowScreen(rules).fitting_rows), rules)
        for decoded in _decoded(self.source, screen.decode, piece, RAW_RECORDS.names, see):
            truncated = decoded.truncated()
            if truncated is not None:
                yield truncated, None
            yield decoded.rows, screen.rejects_of(decoded)

    def _decoder(self, piece: OffsetRange, written: WrittenRows | None = None) -> Decoder:
        return asking_decoder(
            self.source, self.key, self.watch, self.routes, piece.topic, self.sources, written
        )


def range_reader(source: KafkaSource, key: Sequence[str] = (), routes: Sequence[str] = ()) -> RangeReader:
    """The reader that tasks turn offset ranges into rows with.

    It can be pickled; the source's schema must be known. Raises InvalidOptionError (also for an option of the
    decoder), FeatureUnsupportedError, before anything runs.
    """
    row_decoder(source, key, routes=routes)
    require_watermark_column(source.settings.watermark_column, source.table_schema)
    return RangeReader(source, tuple(key), routes=tuple(routes))


def row_decoder(
    source: KafkaSource,
    key: Sequence[str] = (),
    watch: Watch | None = None,
    routes: Sequence[str] = (),
    *,
    topic: str = "",
    sources: Mapping[str, str] | None = None,
) -> Decoder:
    """The decoder of a source's records.

    `key` are the columns that identify rows. An envelope that has the whole row from before an update then
    shows that a row gets another key, or another table where a column of `routes` names it. With a `watch`
    the decoder raises NewSchemaError for records with something that the schema lacks. `topic` and `sources`
    say which source table its changes are of.
    """
    options = dict(source.settings.decode)
    tables = SourceTables(source.settings.source_tables).of_topic(topic, sources, source.topics or ())

    def decoder(watch: Watch | None) -> Decoder:
        if source.is_envelope:
            return ChangeRows(
                source.table_schema,
                source.metadata_columns,
                source.format,
                key,
                options,
                routes=routes,
                partial_update=source.settings.partial_update,
                watch=watch,
                tables=tables,
            )
        schema = source.table_schema
        kept = tuple(part for part in schema.fields if part.name != ROW_KIND or not source.has_row_kinds)
        plain = RowDecoder(
            replace(schema, fields=kept),
            source.metadata_columns,
            source.format,
            options,
            watch,
            partial_update=source.settings.partial_update,
            rejects_nulls=source.settings.null_value == REJECT_NULLS,
        )
        if not source.has_row_kinds:
            return plain
        return DeletingDecoder(plain, schema, source.metadata_columns, key, options, source.format)

    if watch is None:
        return decoder(None)
    taken = frozenset({*watch.taken, *source.metadata_columns, ROW_KIND})
    columns = [part for part in source.table_schema.fields if part.name not in taken]
    return watching_decoder(decoder, source.format, columns, replace(watch, taken=taken), options, tables)


def asking_decoder(
    source: KafkaSource,
    key: Sequence[str],
    watch: Watch | None,
    routes: Sequence[str],
    topic: str,
    sources: Mapping[str, str] | None,
    written: WrittenRows | None = None,
) -> Decoder:
    """The decoder of `row_decoder`; it raises NewSourceError for a source table that is not recorded.

    It only does so where changes name their tables and `sources` is given.
    """
    opened = partial(row_decoder, source, key, watch, routes, topic=topic, sources=sources)
    if sources is None or not source.is_envelope:
        return opened()
    return AskingDecoder(opened, topic, sources, written)


def read_range(
    source: KafkaSource, decoder: Decoder, piece: OffsetRange, see: See = not_seen
) -> Iterator[pa.RecordBatch]:
    """The rows of one range. Raises SourceError, DataLossError, DecodeError."""
    for decoded in _decoded(source, decoder.decode, piece, parts_read(source), see):
        truncated = decoded.truncated()
        if truncated is not None:
            yield truncated
        if decoded.rows.num_rows:
            yield decoded.rows


def _decoded(
    source: KafkaSource,
    decode: Callable[[pa.RecordBatch], Decoded],
    piece: OffsetRange,
    parts: Collection[str],
    see: See,
) -> Iterator[Decoded]:
    """The decoded batches of a range; `see` is called with each."""
    for raw in fetch_range(source, piece, parts):
        decoded = decode(raw)
        see(decoded)
        yield decoded


def parts_read(source: KafkaSource) -> set[str]:
    """The parts of a record that a source's rows are made from."""
    needed = {"value", "key", "headers"} if source.has_row_kinds else {"value"}
    return {*needed, *source.metadata_columns.values(), "timestamp"}
