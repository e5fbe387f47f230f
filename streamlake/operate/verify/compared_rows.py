"""Converts rows of a source and of a table, in Spark tasks, into the bytes of key and row that are compared.

First step of `comparison`. Both sides become SIDE_COLUMNS, whatever they are read from: live rows of a
table's data files, records of a Kafka topic through the pipeline's decoder, or the rows of any DataFrame.
Invariant: the values of a source are converted as the sink converts them, so what is equal here is what the
sink would have written.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.row_kinds import row_kinds
from streamlake.decode.rejected_records import RejectStamp
from streamlake.decode.values.decoded import Decoded
from streamlake.errors import DecodeError, InvalidOptionError
from streamlake.formats.arrow.row_bytes import encode_rows
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.index.keys.sequence_values import SequenceCodec
from streamlake.operate.verify.rejected_places import NO_REJECTS, RejectedPlaces
from streamlake.read.column_selection import select_columns
from streamlake.read.deletes import DeleteReader
from streamlake.read.file_rows import FileRows
from streamlake.read.planning import FileScanTask
from streamlake.records import MISSING_FIELDS, PLACE, PLACE_TYPE, ROW_SEQUENCE, RowKind, record_place
from streamlake.source.fetcher import fetch_range
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.data_types import NestedField
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO
from streamlake.table.table import Table
from streamlake.tasks.direct_reader import parts_read, row_decoder
from streamlake.tasks.record_screen import RejectRules, RowScreen
from streamlake.tasks.worker_paths import keep_archive_directories
from streamlake.write.rows.row_check import RowCheck

Array = np.ndarray[Any, Any]
Batches = Iterator[pa.RecordBatch]

SIDE_SCHEMA = "key binary, row binary, guard binary, at bigint, partition int, removes boolean"
_ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("row", pa.binary()),
        ("guard", pa.binary()),
        ("at", pa.int64()),
        ("partition", pa.int32()),
        ("removes", pa.bool_()),
    ]
)
_READ_ROWS = 65_536
_SENT_ROWS = 10_000
_SIGN = np.int64(-(2**63))
UNREADABLE_KEY = b"\x02"
"""The first byte of the key that stands for a record which cannot become a row; the key of a row begins with
0 or 1. Its place follows, and the reason is in the place of the row.
"""


@dataclass(frozen=True)
class RowForm:
    """Which parts of a row are compared, and how.

    `fields` are the compared columns, the key's first; without a key the whole row identifies itself.
    `sequence` and `row_kind` are for a source of changes; `keeps_before` says whether -U removes a row
    (changelog) or is left out (upsert). `table` is for messages. `numbers` are text columns whose values are
    numbers: there 1.50 equals 1.5. `singles` are columns of doubles that hold 32-bit numbers, and are
    compared as such.
    """

    table: str
    fields: tuple[NestedField, ...]
    key: tuple[str, ...] = ()
    sequence: tuple[NestedField, ...] = ()
    row_kind: str | None = None
    keeps_before: bool = False
    numbers: frozenset[str] = frozenset()
    singles: frozenset[str] = frozenset()

    @property
    def key_fields(self) -> tuple[NestedField, ...]:
        """The fields of the key."""
        return self.fields[: len(self.key)]

    @property
    def value_fields(self) -> tuple[NestedField, ...]:
        """The compared fields that are not part of the key."""
        return self.fields[len(self.key) :]

    @cached_property
    def schema(self) -> Schema:
        """What rows of a source have to fit: a null in a required column is a difference, not an error."""
        needed = dict.fromkeys((*self.fields, *self.sequence))
        fields = tuple(replace(part, required=False) for part in needed)
        return Schema(tuple(sorted(fields, key=lambda part: part.field_id)))

    @cached_property
    def _check(self) -> RowCheck:
        return RowCheck(self.schema, self.table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a source, without that of row kinds.

        It must have those of the key and the order; others may be missing and count as null.
        """
        return tuple(dict.fromkeys(part.name for part in (*self.fields, *self.sequence)))

    def of_source(self, rows: pa.Table, at: Array | None = None, partition: int = 0) -> pa.RecordBatch:
        """N rows of a source in the form of SIDE_SCHEMA; `at` (n,) int64 is their place in its order.

        Raises SchemaMismatchError for a value that does not fit the table.
        """
        removes: Array = np.zeros(rows.num_rows, dtype=bool)
        if self.row_kind is not None:
            kinds = row_kinds(rows.column(self.row_kind), f"the source's column '{self.row_kind}'").to_numpy()
            removes = (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)
            if not self.keeps_before:
                kept = kinds != RowKind.UPDATE_BEFORE
                rows, removes = rows.filter(pa.array(kept)), removes[kept]
                at = None if at is None else at[kept]
        aligned = self._check.align(rows.select([name for name in self.columns if name in rows.column_names]))
        return self._batch(aligned, self._sequence_values(aligned), at, partition, removes)

    def of_table(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """N live rows of the table in the form of SIDE_SCHEMA."""
        removes: Array = np.zeros(rows.num_rows, dtype=bool)
        return self._batch(pa.Table.from_batches([rows]), None, None, 0, removes)

    def _batch(
        self,
        rows: pa.Table,
        sequence_values: pa.Array | None,
        at: Array | None,
        partition: int,
        removes: Array,
    ) -> pa.RecordBatch:
        count = rows.num_rows
        for names, plain in ((self.numbers, plain_numbers), (self.singles, single_numbers)):
            for name in names:
                at_place = rows.column_names.index(name)
                rows = rows.set_column(at_place, rows.field(at_place), plain(rows.column(name)))
        key, value = self.key_fields, self.value_fields
        if not key:
            key, value = value, ()
        empty = pa.repeat(pa.scalar(b"", pa.binary()), count)
        return pa.record_batch(
            [
                _encoded(rows, key, as_key=bool(self.key)),
                _encoded(rows, value, as_key=False) if value else empty,
                empty if sequence_values is None else sequence_values,
                pa.array(np.zeros(count, dtype=np.int64) if at is None else at),
                pa.repeat(pa.scalar(partition, pa.int32()), count),
                pa.array(removes),
            ],
            schema=_ARROW_SCHEMA,
        )

    def _sequence_values(self, rows: pa.Table) -> pa.Array | None:
        """The sequence values: bytes that order like the columns of `sequence_by`."""
        if not self.sequence:
            return None
        codec = SequenceCodec(self.sequence)
        values = codec.encode([rows.column(part.name) for part in self.sequence], self.table).values
        if not isinstance(values, np.ndarray):
            return values.cast(pa.binary())
        flipped = (values.astype(np.int64) ^ _SIGN).astype(">i8")
        return pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(8), len(values), [None, pa.py_buffer(flipped)]
        ).cast(pa.binary())


def _encoded(rows: pa.Table, fields: Sequence[NestedField], *, as_key: bool) -> pa.BinaryArray:
    columns = [rows.column(part.name).combine_chunks() for part in fields]
    columns = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns]
    return encode_rows(columns, [part.type for part in fields], as_key=as_key)


@dataclass(frozen=True)
class TableRows:
    """Reads the live rows of some data files: a `mapInArrow` function over pickled lists of FileScanTasks."""

    form: RowForm
    io: FileIO
    schemas: tuple[Schema, ...]
    name_mapping: str | None
    is_source: bool = False
    chosen: tuple[str, ...] | None = None

    @staticmethod
    def of(
        table: Table, form: RowForm, *, is_source: bool = False, chosen: tuple[str, ...] | None = None
    ) -> TableRows:
        """The reader for the live rows of `table`.

        `is_source`: it is the table compared with, whose types may differ. `chosen`: only these columns of it
        are read (None: all that are compared); others count as null.
        """
        others = sorted(table.schemas.values(), key=lambda each: -each.schema_id)
        mapping = table.properties.get(NAME_MAPPING_PROPERTY)
        return TableRows(form, table.io, (table.schema, *others), mapping, is_source, chosen)

    def __call__(self, batches: Batches) -> Batches:
        """The rows of the data files in `batches`, as SIDE_SCHEMA."""
        keep_archive_directories()
        for batch in batches:
            for part in batch.column(0):
                yield from self._read(pickle.loads(part.as_py()))

    def _read(self, tasks: Sequence[FileScanTask]) -> Batches:
        mapping = None if self.name_mapping is None else NameMapping.from_json(self.name_mapping)
        deletes = DeleteReader(self.io, self.schemas, mapping)
        known = self.schemas[0].column_names if self.chosen is None else self.chosen
        names = [name for name in self.form.columns if name in known]
        rows = FileRows(self.io, select_columns(self.schemas[0], names), deletes, mapping, _READ_ROWS)
        for task in tasks:
            for batch in rows.read(task):
                if self.is_source:
                    yield from sent(self.form.of_source(pa.Table.from_batches([batch])))
                else:
                    yield from sent(self.form.of_table(batch))


@dataclass(frozen=True)
class RecordRows:
    """Reads offset ranges of Kafka: a `mapInArrow` function over batches of the schema OFFSET_RANGES.

    `sources` are the source tables that the table has recorded for topics. They count for every range, not
    what the range itself shows first. Records in `rejected` are left out.
    """

    form: RowForm
    source: KafkaSource
    sources: Mapping[str, str]
    rejected: RejectedPlaces = NO_REJECTS

    def __call__(self, batches: Batches) -> Batches:
        """The rows of the records in the ranges of `batches`, as SIDE_SCHEMA."""
        keep_archive_directories()
        for batch in batches:
            for piece in batch.to_pylist():
                yield from self._read(OffsetRange(**piece))

    def _read(self, piece: OffsetRange) -> Batches:
        form = self.form
        decoder = row_decoder(self.source, form.key, topic=piece.topic, sources=self.sources)
        screen = RowScreen(
            RejectRules(
                form.table,
                form.schema,
                RejectStamp("", 0, 0),
                key=form.key,
                sequence_by=tuple(part.name for part in form.sequence),
                row_kind=form.row_kind,
            )
        )
        for fetched in fetch_range(self.source, piece, parts_read(self.source)):
            raw = self.rejected.left(fetched, piece.topic, piece.partition)
            decoded = screen.fitting(decoder.decode(raw, keep_rejects=True))
            if decoded.rejects:
                yield _unreadable(decoded)
            _require_whole_rows(decoded)
            rows, at = (
                decoded.rows.select(decoder.schema.names),
                raw.column("offset").to_numpy()[decoded.records],
            )
            yield from sent(form.of_source(pa.Table.from_batches([rows]), at, piece.partition))


@dataclass(frozen=True)
class FrameRows:
    """Takes the rows of a DataFrame: a `mapInArrow` function over its batches."""

    form: RowForm

    def __call__(self, batches: Batches) -> Batches:
        """The rows in `batches`, as SIDE_SCHEMA."""
        keep_archive_directories()
        for batch in batches:
            if batch.num_rows:
                yield from sent(self.form.of_source(pa.Table.from_batches([batch])))


def plain_numbers(text: pa.Array) -> pa.Array:
    """Texts of decimal numbers without trailing zeros of their fraction."""
    short = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    return pc.if_else(pc.match_substring(text, "."), short, text)


def single_numbers(doubles: pa.Array) -> pa.Array:
    """Doubles, rounded to the nearest 32-bit numbers."""
    return doubles.cast(pa.float32(), safe=False).cast(pa.float64())


Reader = Callable[[Batches], Batches]


def _unreadable(decoded: Decoded) -> pa.RecordBatch:
    """The records of a batch that cannot become rows, in the form of SIDE_SCHEMA."""
    count = len(decoded.rejects)
    keys = [UNREADABLE_KEY + record_place(decoded.raw, each.record).encode() for each in decoded.rejects]
    return pa.record_batch(
        [
            pa.array(keys, pa.binary()),
            pa.array([each.reason.encode() for each in decoded.rejects], pa.binary()),
            pa.repeat(pa.scalar(b"", pa.binary()), count),
            pa.array(np.zeros(count, dtype=np.int64)),
            pa.array(np.zeros(count, dtype=np.int32)),
            pa.array(np.zeros(count, dtype=bool)),
        ],
        schema=_ARROW_SCHEMA,
    )


def _require_whole_rows(decoded: Decoded) -> None:
    if MISSING_FIELDS in decoded.rows.schema.names:
        place = decoded.rows.column(PLACE).drop_null()[0].as_py()
        what = "the record leaves values out, which are those of an older row"
    elif decoded.truncates:
        record = decoded.truncates[0].record
        place = {part.name: decoded.raw.column(part.name)[record].as_py() for part in PLACE_TYPE}
        what = "the record truncates the table"
    else:
        return
    raise DecodeError(
        f"{place['topic']}-{place['partition']} offset {place['offset']}: {what}; such a topic cannot be "
        "compared with its table: compare the table with its source itself"
    )


def sent(batch: pa.RecordBatch) -> Batches:
    """The batch in small pieces: Spark takes many small batches faster than few large ones."""
    for start in range(0, batch.num_rows, _SENT_ROWS):
        yield batch.slice(start, _SENT_ROWS)


def row_form(
    table: Table,
    *,
    key: Sequence[str],
    sequence_by: Sequence[str] = (),
    row_kind: str | None = None,
    keeps_before: bool = False,
    columns: Sequence[str] | None = None,
) -> RowForm:
    """The form in which rows of `table` are compared: by the key and `columns` (None: all).

    Raises InvalidOptionError for a column that the table does not have.
    """
    by_name = {part.name: part for part in table.schema.fields}
    # The source position is not stored in the table; the order of the source's records is the same.
    sequence_by = [name for name in sequence_by if name != ROW_SEQUENCE]
    for name in (*key, *sequence_by, *(columns or ())):
        if name not in by_name:
            raise InvalidOptionError(
                f"{table.location} has no column '{name}' that could be compared; its columns are "
                f"{', '.join(by_name)} (whole columns only)"
            )
    others = [name for name in (by_name if columns is None else columns) if name not in key]
    return RowForm(
        table.location,
        tuple(by_name[name] for name in (*key, *dict.fromkeys(others))),
        tuple(key),
        tuple(by_name[name] for name in sequence_by),
        row_kind,
        keeps_before,
    )
