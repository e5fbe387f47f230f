"""Row decoder for change streams: raw record batches -> rows with row kinds and metadata columns.

The counterpart of `row_decoder` for envelopes: runs on the executors between `source` and `write`, once per
raw batch. Invariant: nothing in the change stream is skipped silently. What the rows cannot express is an
error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.debezium.debezium_converters import converters_by_options, converters_by_schema
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.cdc.debezium.debezium_parts import debezium_parts
from streamlake.decode.cdc.envelope_decoder import record_error
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.decode.cdc.payloads import PayloadForm
from streamlake.decode.cdc.row_reader import RowReader
from streamlake.decode.cdc.source_tables import SourceTables
from streamlake.decode.values.decoded import Decoded
from streamlake.decode.values.envelope import Changes, KeyMove, Reject, Truncate
from streamlake.decode.values.new_fields import Watch
from streamlake.formats.arrow.arrow_schema import arrow_type, schema_to_arrow
from streamlake.formats.arrow.missing_fields import missing_fields_column
from streamlake.records import (
    KEY_CHANGE,
    MISSING_FIELDS,
    PLACE,
    ROW_KIND,
    ROW_SEQUENCE,
    SEQUENCE,
    RowKind,
    record_places,
)
from streamlake.spec.types.schema import Schema

_CONTROL = re.compile(rb"[\x00-\x1f]")


class KeyChanges:
    """Reads the other keys of key changes, as the columns `key` of `schema`."""

    def __init__(
        self, schema: Schema, key: Sequence[str], options: DebeziumOptions, form: PayloadForm
    ) -> None:
        self._schema = Schema(tuple(part for part in schema.fields if part.name in key))
        self._key = tuple(key)
        self._options = options
        self._form = form
        self._type = pa.struct([pa.field(part.name, arrow_type(part.type)) for part in self._schema.fields])

    def column(self, moves: Sequence[KeyMove], rows: int) -> pa.StructArray:
        """For n rows, each key change's other key as a struct of the key's columns; null for other rows."""
        keys: list[dict[str, Any] | None] = [None] * rows
        for move in moves:
            value = move.from_key if move.to_key is None else move.to_key
            keys[move.row] = None if value is None else self._key_of(value)
        return pa.array(keys, self._type)

    def _key_of(self, value: bytes) -> dict[str, Any] | None:
        # Connect's converter of headers writes control characters in texts as they are.
        return self._read(value) or self._read(_CONTROL.sub(lambda at: b"\\u%04x" % at[0][0], value))

    def _read(self, value: bytes) -> dict[str, Any] | None:
        try:
            image, connect = self._form.payload(value)
            if not isinstance(image, dict):
                return None
            if connect is None:
                converters = converters_by_options(self._schema, [image], self._options)
            else:
                converters = converters_by_schema(self._schema, connect, self._options)
            row, missing = RowReader(self._schema, converters, self._key, None).row(
                image, "key", brought=False
            )
        except ValueError:
            return None
        return None if missing else row


class ChangeRows:
    """Decodes the records of one source.

    `schema` is that of the rows: columns of `metadata` ({column: part of the record}), ROW_KIND, and the
    table's own columns. `key` are the table's columns that identify a row (none: what the envelope says
    counts), and `routes` those that name the table of a row. `partial_update`: a field that a row does not
    have is recorded as missing.
    """

    def __init__(  # noqa: PLR0913
        self,
        schema: Schema,
        metadata: Mapping[str, str],
        format: str,
        key: Sequence[str],
        options: Mapping[str, str],
        *,
        routes: Sequence[str] = (),
        partial_update: bool = False,
        watch: Watch | None = None,
        tables: SourceTables | None = None,
    ) -> None:
        typed = {part.name: part.type for part in schema_to_arrow(schema)}
        self.schema = pa.schema([pa.field(name, type_) for name, type_ in typed.items()])
        self._metadata = dict(metadata)
        fields = tuple(part for part in schema.fields if part.name not in metadata and part.name != ROW_KIND)
        self._key_changes: KeyChanges | None = None
        if key and format.startswith("debezium"):
            self._key_changes = KeyChanges(Schema(fields), key, *debezium_parts(format, options))
        self._decoder = open_decoder(
            format,
            Schema(fields),
            key,
            options,
            routes=routes,
            partial_update=partial_update,
            watch=watch,
            tables=tables,
        )
        self._truncates = tables is None or tables.truncates

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """See Decoder; deletes may hold nulls outside of the key.

        Also raises DecodeError for a truncate that has no position in the database's log.
        """
        changes = self._decoder.decode(raw, keep_rejects=keep_rejects)
        truncates, rejects = _placed_truncates(raw, changes, self._truncates, keep_rejects=keep_rejects)
        columns = {name: changes.rows.column(name) for name in changes.rows.schema.names}
        of_record = pa.array(changes.records)
        for column, part in self._metadata.items():
            columns[column] = (
                _places(changes.sequence) if part == SEQUENCE else raw.column(part).take(of_record)
            )
        arrays = [_typed(columns[field.name], field.type) for field in self.schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        rows = rows.append_column(ROW_SEQUENCE, changes.sequence)
        if changes.moves and self._key_changes is not None:
            rows = rows.append_column(KEY_CHANGE, self._key_changes.column(changes.moves, rows.num_rows))
        return Decoded(
            raw,
            _with_missing_fields(rows, raw, changes),
            changes.records,
            truncates=truncates,
            moves=changes.moves,
            rejects=rejects,
            ignored=changes.ignored,
            tombstones=changes.tombstones,
            named=changes.named,
            table=changes.table,
        )


def _places(sequence: pa.Array) -> pa.Array:
    """The source positions themselves, also of rows that a snapshot read there."""
    return pc.if_else(pc.less(sequence, 0), pc.bit_wise_not(sequence), sequence)


def _with_missing_fields(rows: pa.RecordBatch, raw: pa.RecordBatch, changes: Changes) -> pa.RecordBatch:
    """The rows, with MISSING_FIELDS and PLACE if upserted rows have unavailable values or missing fields."""
    brought = np.isin(changes.rows.column(ROW_KIND).to_numpy(), (RowKind.INSERT, RowKind.UPDATE_AFTER))
    masks = {name: mask & brought for name, mask in changes.missing.items()}
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if not masks:
        return rows
    missing = missing_fields_column(masks, rows.num_rows)
    place = record_places(raw, changes.records, missing.is_null())
    return rows.append_column(MISSING_FIELDS, missing).append_column(PLACE, place)


def _placed_truncates(
    raw: pa.RecordBatch, changes: Changes, is_only: bool, *, keep_rejects: bool
) -> tuple[tuple[Truncate, ...], tuple[Reject, ...]]:
    """The truncates with a source position, and the rejects for the others.

    `is_only`: there are no rows of another source. A truncate would delete those by a position that cannot be
    compared with theirs.
    """
    placed = tuple(each for each in changes.truncates if is_only and each.sequence is not None)
    why = "the record does not say when: its position in the database's log is missing"
    if not is_only:
        why = (
            "rows of other tables or topics are in the same table, and nothing distinguishes them from its "
            "own: delete its rows yourself, and drop the record (on_error='reject'), or give each source a "
            "table of its own"
        )
    rejects = [
        Reject(each.record, f"{each.table} was truncated, and {why}")
        for each in changes.truncates
        if each not in placed
    ]
    if rejects and not keep_rejects:
        raise record_error(raw, rejects[0].record, rejects[0].reason)
    return placed, tuple(sorted((*changes.rejects, *rejects), key=lambda each: each.record))


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)
