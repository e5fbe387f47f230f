"""Maxwell's messages: "data" is the row after the change, "old" the former values of what an update changed.

An `Envelope`. insert, bootstrap-insert, update and delete change a row. The other bootstrap messages and
those of schema changes change none: they are ignored and counted. The sequence is the binlog `position` where
Maxwell is configured to write it (output_binlog_position), else `ts`, the seconds of the change: within a
second the order of arrival decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.change_parts import changes_schema, joined, kind_codes
from streamlake.decode.cdc.debezium.debezium_source import binlog_sequence, binlog_sequences
from streamlake.decode.cdc.envelope_decoder import one_by_one
from streamlake.decode.cdc.mysql_rows import has_nulls, key_type, row_changes
from streamlake.decode.cdc.row_reader import RowReader
from streamlake.decode.cdc.source_tables import OTHER_TABLE, TableCheck, joined_name, joined_names
from streamlake.decode.converters.converter import ByForm, Converter, Plain, form_of
from streamlake.decode.converters.nested_converters import ListOf
from streamlake.decode.converters.text_converters import NumberTruth
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import FieldError, parse_object
from streamlake.decode.json.samples import samples
from streamlake.decode.values.envelope import Changes, Outcome, Records
from streamlake.decode.values.new_fields import Watch, watching
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import InvalidOptionError
from streamlake.records import RowKind
from streamlake.spec.types.data_types import (
    BooleanType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
)
from streamlake.spec.types.schema import Schema

_KINDS = {
    "insert": RowKind.INSERT,
    "bootstrap-insert": RowKind.INSERT,
    "update": RowKind.UPDATE_AFTER,
    "delete": RowKind.DELETE,
}
_IGNORED = {"bootstrap-start": "bootstrap", "bootstrap-complete": "bootstrap"}
_SCHEMA_CHANGE = re.compile(r"(?:table|database)-(?:create|alter|drop)|ddl")
_POSITION = re.compile(r"(.*):(\d{1,18})")
_OTHER = -1
_TABLE = (NestedField(0, "database", StringType()), NestedField(0, "table", StringType()))
_NAMES = JsonColumns(_TABLE, JsonOptions(), strict_names=False)


class MaxwellJson:
    """Reads messages of one table to the columns of `schema`.

    `key` names the columns of its key; for `routes` see RowReader.
    """

    def __init__(
        self,
        schema: Schema,
        key: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        *,
        routes: Sequence[str] = (),
        partial_update: bool = False,
        watch: Watch | None = None,
        check: TableCheck | None = None,
    ) -> None:
        self._check = check or TableCheck()
        if options:
            raise InvalidOptionError(f"maxwell-json has no options, but '{next(iter(options))}' is set")
        self._schema = schema
        self._key = tuple(key)
        self._routes = tuple(routes)
        self._partial_update = partial_update
        self._watch = watch
        self._arrow = changes_schema(schema)

    def bulk(self, records: Records) -> Changes:
        """See Envelope.bulk."""
        reader = self._reader([found.get("data") for found in samples(records.values)])
        fields = [
            NestedField(0, "data", reader.physical),
            NestedField(0, "type", StringType()),
            NestedField(0, "ts", LongType()),
            NestedField(0, "position", StringType()),
            *_TABLE,
        ]
        if reader.placing:
            fields.append(NestedField(0, "old", key_type(reader)))
        watched = watching(self._watch, ("data",))
        columns = JsonColumns(fields, JsonOptions(), strict_names=False, **watched).read(records.values)
        data, types, ts, position, database, table, *olds = columns
        kinds = kind_codes(types, _KINDS, _OTHER)
        sequence = ts if position.null_count == len(position) else _sequences(position, ts)
        others = (kinds == _OTHER) | ~data.is_valid().to_numpy(zero_copy_only=False)
        others |= (kinds != RowKind.DELETE) & reader.unclear(data)
        others |= (kinds == RowKind.DELETE) & reader.lacks(data, reader.routes)
        is_change = kinds != _OTHER
        names = joined_names(None, [database, table])
        brings = is_change & (kinds != RowKind.DELETE)
        others[is_change] |= self._check.foreign(
            names.filter(pa.array(is_change)), (brings & ~others)[is_change]
        )
        if olds:
            left, entered = reader.key_changes(olds[0], data)
            entered &= has_nulls(reader, records.values)
            others |= (left | entered) & (kinds == RowKind.UPDATE_AFTER)
        parts = reader.parts(data, np.where(others, _OTHER, kinds), sequence, records.places)
        self._check.came(names.filter(pa.array(brings & ~others)))
        self._check.went(names.filter(pa.array((kinds == RowKind.DELETE) & ~others)))
        if others.any():
            parts.append(one_by_one(self, records.take(np.flatnonzero(others)), self._arrow))
        return joined(parts, self._arrow)

    def tables(self, records: Records) -> pa.StringArray:
        """See Envelope.tables."""
        return joined_names(None, _NAMES.read(records.values))

    def one(self, value: bytes, key: bytes | None) -> Outcome:
        """See Envelope.one."""
        found = parse_object(value)
        type_ = found.get("type")
        if not isinstance(type_, str):
            raise FieldError(f"'type' is {type_!r}, which is not a change of Maxwell")
        if type_ in _IGNORED:
            return Outcome(ignored=_IGNORED[type_])
        if _SCHEMA_CHANGE.fullmatch(type_) is not None:
            return Outcome(ignored="schema change")
        if type_ not in _KINDS:
            raise FieldError(f"'type' is {type_!r}, which is not a change of Maxwell")
        name = joined_name(None, [found.get("database"), found.get("table")])
        if not self._check.takes(name):
            return Outcome(ignored=OTHER_TABLE)
        reader = self._reader([found.get("data")])
        sequence = _sequence(found)
        changes = row_changes(reader, _KINDS[type_], found.get("data"), found.get("old"), sequence, "data")
        (self._check.went_one if _KINDS[type_] == RowKind.DELETE else self._check.came_one)(name)
        return Outcome(changes=changes)

    def tombstone(self, key: bytes | None) -> Outcome | None:
        """See Envelope.tombstone."""
        return None

    def _reader(self, rows: Sequence[Any]) -> RowReader:
        images = [row for row in rows if isinstance(row, dict)]
        converters = {
            part.name: _converter(part.type, [row.get(part.name) for row in images])
            for part in self._schema.fields
        }
        return RowReader(
            self._schema,
            converters,
            self._key,
            None,
            routes=self._routes,
            partial_update=self._partial_update,
            watch=self._watch,
        )


def _converter(type_: IcebergType, shown: Sequence[Any]) -> Converter:
    if isinstance(type_, BooleanType):
        forms: dict[str, Converter] = {"number": NumberTruth(), "boolean": Plain(type_)}
        form = next(
            (form_of(found) for found in shown if form_of(found) in forms and found is not None), "number"
        )
        return ByForm(type_, forms, form)
    if isinstance(type_, ListType):
        return ListOf(type_, Plain(type_.element_type))
    return Plain(type_)


def _sequences(position: pa.Array, ts: pa.Array) -> pa.Array:
    split = pc.extract_regex(position, r"^(?P<file>.*):(?P<at>[0-9]{1,18})$")
    if split.null_count > position.null_count:
        raise NotBulkError
    file, at = pc.struct_field(split, "file"), pc.struct_field(split, "at").cast(pa.int64())
    return pc.coalesce(binlog_sequences(file, at), ts)


def _sequence(found: Mapping[str, Any]) -> int | None:
    position, ts = found.get("position"), found.get("ts")
    if position is not None:
        match = _POSITION.fullmatch(position) if isinstance(position, str) else None
        if match is None:
            raise FieldError(f"'position' is {position!r}, which is not a position in a binlog")
        return binlog_sequence(match[1], int(match[2]))
    if ts is not None and (isinstance(ts, bool) or not isinstance(ts, int) or abs(ts) >= 1 << 63):
        raise FieldError(f"'ts' is {ts!r}, which is not a time")
    return ts
