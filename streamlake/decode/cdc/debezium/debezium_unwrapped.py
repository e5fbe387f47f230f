"""Decoder of Debezium's events after its ExtractNewRecordState transform: rows with metadata columns.

An `Envelope`. `__deleted` ("true") and `__op` say what the change does; without both, it is an upsert. The
sequence comes from the fields of "source" that `add.fields` added: `__lsn` or `__source_lsn`, and so on, see
`debezium_source`. Only fields that order the changes are used: a `__pos` without its `__file` gives no
sequence, nor do `__ts_ms` and the like, which are the times at which Debezium handled the event.

Where neither `__op` nor a field `snapshot` says whether a snapshot read the row, it has no sequence: the
snapshot's position may be above that of changes that follow it. With the transform's default a delete is only
a tombstone, so a tombstone deletes the row of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.change_parts import joined
from streamlake.decode.cdc.debezium.debezium_converters import converters_by_options, converters_by_schema
from streamlake.decode.cdc.debezium.debezium_envelope import DebeziumEnvelope
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.cdc.debezium.debezium_source import Position, position_of, read_at
from streamlake.decode.cdc.envelope_decoder import one_by_one
from streamlake.decode.cdc.payloads import PayloadForm, Payloads
from streamlake.decode.cdc.row_reader import RowReader
from streamlake.decode.cdc.source_tables import (
    EVENT_PARTS,
    OTHER_TABLE,
    TableCheck,
    joined_names,
    unwrapped_name,
)
from streamlake.decode.json.json_values import FieldError
from streamlake.decode.values.connect_schema import ConnectSchema
from streamlake.decode.values.envelope import Array, Change, Changes, Outcome
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.records import RowKind
from streamlake.spec.types.data_types import NestedField, StringType, StructType
from streamlake.spec.types.schema import Schema

_KINDS = {
    None: RowKind.UPDATE_AFTER,
    "c": RowKind.INSERT,
    "r": RowKind.INSERT,
    "u": RowKind.UPDATE_AFTER,
    "d": RowKind.DELETE,
}
_DELETED, _OP = "__deleted", "__op"
_SOURCE, _PLAIN = "__source_", "__"
_SIGNS: Mapping[str, tuple[str, ...]] = {
    "postgresql": ("lsn",),
    "mysql": ("file", "pos"),
    "sqlserver": ("commit_lsn",),
    "mongodb": ("ord", "ts_ms"),
}
"""Fields of "source" that together are a position which only one kind of connector has."""
_TIMES = ("ts_ns", "ts_us", "ts_ms")
"""Fields of both "source" and the event; without `__source_` they are the event's and have no order."""
_PLACES = (
    *(
        f"{prefix}{field}"
        for prefix in (_SOURCE, _PLAIN)
        for field in ("lsn", "file", "pos", "commit_lsn", "ord")
    ),
    *(f"{_SOURCE}{field}" for field in _TIMES),
)
_SNAPSHOT = "snapshot"


class DebeziumUnwrapped(DebeziumEnvelope):
    """Reads unwrapped events of one table."""

    def __init__(
        self,
        schema: Schema,
        key: Sequence[str] = (),
        options: DebeziumOptions | None = None,
        form: PayloadForm | None = None,
        *,
        routes: Sequence[str] = (),
        partial_update: bool = False,
        watch: Watch | None = None,
        check: TableCheck | None = None,
    ) -> None:
        watch = None if watch is None else replace(watch, metadata="__")
        super().__init__(
            schema, key, options, form, routes=routes, partial_update=partial_update, watch=watch, check=check
        )

    def _outcome(
        self, payload: Mapping[str, Any], connect: ConnectSchema | None, key: bytes | None
    ) -> Outcome:
        kind = _kind(payload.get(_OP), payload.get(_DELETED))
        stated = _source_fields(payload)
        table = unwrapped_name(payload)
        if not self._check.takes(table):
            return Outcome(ignored=OTHER_TABLE)
        sequence = stated.position.value({part: payload.get(name) for part, name in stated.names.items()})
        is_read = _is_read(
            kind, payload.get(_OP), None if stated.snapshot is None else payload.get(stated.snapshot)
        )
        if is_read is None:
            sequence = None
        elif is_read:
            sequence = read_at(sequence)
        reader = self._reader(connect, [payload])
        nulls = reader.routes if reader.is_whole(payload) else ()
        row, missing = reader.row(payload, "row", brought=kind != RowKind.DELETE, nulls=nulls)
        (self._check.went_one if kind == RowKind.DELETE else self._check.came_one)(table)
        return Outcome(changes=[Change(kind, row, sequence, missing)])

    def tombstone(self, key: bytes | None) -> Outcome | None:
        """See Envelope.tombstone: deletes the row of its key."""
        if key is None or not self._key:
            return None
        image, connect = self._form.payload(key)
        row, missing = self._reader(connect, [image] if isinstance(image, dict) else []).row(
            image, "key", brought=False
        )
        return Outcome(changes=[Change(RowKind.DELETE, row, None, missing)])

    def _run(self, payloads: Payloads) -> Changes:
        records = payloads.records
        shown = payloads.samples()
        stated = _source_fields({name: None for row in shown for name in row})
        position, names = stated.position, stated.names
        if any(_source_fields(row).differs(stated) for row in shown):
            raise NotBulkError
        unseen: list[str] = []
        if stated.connector is None and payloads.connect is None:
            known = {*stated.names.values(), *(name for row in shown for name in row)}
            unseen = [name for name in _PLACES if name not in known]
        if payloads.connect is None:
            unseen += _unseen_tables(stated, shown)
        snapshot = () if stated.snapshot is None else (stated.snapshot,)
        reader = self._reader(payloads.connect, shown)
        of_row = {part.name for part in reader.physical.fields}
        extra = [_OP, _DELETED, *names.values(), *snapshot, *stated.table]
        source_fields = StructType(position.fields)
        fields = [
            *(part for part in reader.physical.fields if part.name not in extra),
            NestedField(0, _OP, StringType()),
            NestedField(0, _DELETED, StringType()),
            *(NestedField(0, names[part.name], part.type) for part in position.fields if part.name in names),
            *(NestedField(0, name, StringType()) for name in (*snapshot, *stated.table)),
            *(NestedField(0, name, StringType()) for name in unseen if name not in of_row),
        ]
        arrays = payloads.read(fields, reader.watch)
        columns = {part.name: array for part, array in zip(fields, arrays, strict=True)}
        if any(columns[name].null_count < len(records) for name in unseen):
            raise NotBulkError
        images = (
            pa.StructArray.from_arrays(
                [columns[part.name] for part in reader.physical.fields],
                fields=list(arrow_type(reader.physical)),
            )
            if reader.physical.fields
            else pa.nulls(len(records), pa.struct([]))
        )
        source = pa.StructArray.from_arrays(
            [
                columns[names[part.name]]
                if part.name in names
                else pa.nulls(len(records), arrow_type(part.type))
                for part in position.fields
            ],
            fields=list(arrow_type(source_fields)),
        )
        kinds = _kind_codes(columns[_OP], columns[_DELETED])
        if not payloads.complete:
            kinds = np.where((kinds != RowKind.DELETE) & reader.unclear(images), -1, kinds)
        kinds = np.where((kinds == RowKind.DELETE) & reader.lacks(images, reader.routes), -1, kinds)
        is_row = kinds >= 0
        tables = _names_in(columns, stated.table, len(records))
        foreign = self._check.foreign(tables.filter(pa.array(is_row)), kinds[is_row] != RowKind.DELETE)
        kinds[is_row] = np.where(foreign, -1, kinds[is_row])
        reads = _reads(kinds, columns[_OP], columns[stated.snapshot] if stated.snapshot else None)
        sequence = position.column(source)
        sequence = pc.if_else(reads, pc.bit_wise_not(sequence), sequence)
        parts = reader.parts(images, kinds, sequence, records.places)
        self._check.came(tables.filter(pa.array((kinds >= 0) & (kinds != RowKind.DELETE))))
        self._check.went(tables.filter(pa.array(kinds == RowKind.DELETE)))
        others = np.flatnonzero(kinds < 0)
        if len(others):
            parts.append(one_by_one(self, records.take(others), self._arrow))
        return joined(parts, self._arrow)

    def _tables(self, payloads: Payloads) -> pa.StringArray:
        shown = payloads.samples()
        stated = _source_fields({name: None for row in shown for name in row})
        unseen = _unseen_tables(stated, shown) if payloads.connect is None else []
        read = (*stated.table, *unseen)
        arrays = payloads.read([NestedField(0, name, StringType()) for name in read]) if read else []
        columns = dict(zip(read, arrays, strict=True))
        if any(columns[name].null_count < len(payloads.records) for name in unseen):
            raise NotBulkError
        return _names_in(columns, stated.table, len(payloads.records))

    def _reader(self, connect: ConnectSchema | None, shown: Sequence[Mapping[str, Any]]) -> RowReader:
        if connect is None:
            converters = converters_by_options(self._schema, shown, self._options)
        else:
            converters = converters_by_schema(self._schema, connect, self._options)
        return self._row_reader(converters, self._unwatched(connect))


def _kind(op: Any, deleted: Any) -> RowKind:
    """The row kind. Raises FieldError for what the transform does not write."""
    if deleted in ("true", True):
        return RowKind.DELETE
    if deleted not in ("false", False, None):
        raise FieldError(f"'{_DELETED}' is {deleted!r}, which is neither 'true' nor 'false'")
    if not (op is None or isinstance(op, str)) or op not in _KINDS:
        raise FieldError(f"'{_OP}' is {op!r}, which is not an operation on a row")
    return _KINDS[op]


def _kind_codes(op: pa.Array, deleted: pa.Array) -> Array:
    """(n,) int8: the row kinds, -1 where `_kind` refuses."""
    ops, flags = op.dictionary_encode(), deleted.dictionary_encode()
    known_ops = [*ops.dictionary.to_pylist(), None]
    known_flags = [*flags.dictionary.to_pylist(), None]
    table: Array = np.array([[_code(one, flag) for flag in known_flags] for one in known_ops], dtype=np.int8)
    rows = ops.indices.fill_null(len(known_ops) - 1).to_numpy(zero_copy_only=False)
    columns = flags.indices.fill_null(len(known_flags) - 1).to_numpy(zero_copy_only=False)
    result: Array = table[rows, columns]
    return result


def _code(op: str | None, deleted: str | None) -> int:
    try:
        return int(_kind(op, deleted))
    except FieldError:
        return -1


def _is_read(kind: RowKind, op: Any, snapshot: Any) -> bool | None:
    """Whether a snapshot read the row; None where the record does not say."""
    if kind == RowKind.DELETE:
        return False
    if op is not None:
        return bool(op == "r")
    return None if snapshot is None else snapshot not in ("false", False)


def _reads(kinds: Array, op: pa.Array, snapshot: pa.Array | None) -> pa.Array:
    """(n,) bool: `_is_read` of each."""
    marked = pa.nulls(len(op), pa.bool_()) if snapshot is None else pc.not_equal(snapshot, "false")
    reads = pc.if_else(op.is_valid(), pc.equal(op, "r"), marked)
    return pc.if_else(pa.array(kinds == RowKind.DELETE), False, reads)


@dataclass(frozen=True)
class _SourceFields:
    """What a row's metadata says: its position, and the columns of position, snapshot and table."""

    connector: str | None
    position: Position
    names: dict[str, str]
    snapshot: str | None
    table: tuple[str, ...]

    def differs(self, other: _SourceFields) -> bool:
        """Whether a row with this metadata cannot be read as `other`."""
        return bool(self.connector or self.names) and (self.connector, self.names) != (
            other.connector,
            other.names,
        )


def _unseen_tables(stated: _SourceFields, shown: Sequence[Mapping[str, Any]]) -> list[str]:
    """Fields that may name a table and that the shown rows do not have; other rows may have them."""
    known = {*stated.table, *(name for row in shown for name in row)}
    fields = (f"{prefix}{part}" for prefix in (_SOURCE, _PLAIN) for part in ("name", *EVENT_PARTS))
    return [name for name in fields if name not in known]


def _names_in(columns: Mapping[str, pa.Array], table: Sequence[str], count: int) -> pa.StringArray:
    if not table:
        return pa.nulls(count, pa.string())
    server, *parts = (columns[name] for name in table)
    return joined_names(server, parts)


def _source_fields(row: Mapping[str, Any]) -> _SourceFields:
    found: dict[str, str] = {}
    for prefix in (_PLAIN, _SOURCE):
        fields = {name[len(prefix) :]: name for name in row if name.startswith(prefix)}
        found.update(
            {field: name for field, name in fields.items() if prefix == _SOURCE or field not in _TIMES}
        )
    connector = next(
        (each for each, fields in _SIGNS.items() if all(field in found for field in fields)), None
    )
    position = position_of(connector)
    names = {part.name: found[part.name] for part in position.fields if part.name in found}
    parts = ("name", *EVENT_PARTS)
    table = tuple(found.get(field, f"{_PLAIN}{field}") for field in parts)
    is_named = any(field in found for field in parts)
    return _SourceFields(connector, position, names, found.get(_SNAPSHOT), table if is_named else ())
