"""Decoder of Canal's flat messages (Canal-JSON): "data" and "old" hold rows, all values are text.

An `Envelope`, for messages of Canal and TiCDC. INSERT, UPDATE and DELETE change rows, several in one record.
TRUNCATE empties the table. Other statements (isDdl) and TiCDC's watermarks change no row: they are ignored
and counted. The sequence is TiDB's commit time where it is given (`_tidb.commitTs`), else `es`, the
milliseconds at which the statement was executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.change_parts import changes_schema, joined, kind_codes
from streamlake.decode.cdc.envelope_decoder import one_by_one
from streamlake.decode.cdc.mysql_rows import has_nulls, key_type, row_changes
from streamlake.decode.cdc.row_reader import RowReader
from streamlake.decode.cdc.source_tables import OTHER_TABLE, TableCheck, joined_name, joined_names
from streamlake.decode.converters.converter import Converter, Plain, Refused, whole_number
from streamlake.decode.converters.text_converters import Latin1, TextReal, TextTruth, TextWhole
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import FieldError, parse_object
from streamlake.decode.values.envelope import Array, Changes, Outcome, Records
from streamlake.decode.values.new_fields import Watch, watching
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import InvalidOptionError
from streamlake.records import RowKind
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from streamlake.spec.types.schema import Schema

_KINDS = {"INSERT": RowKind.INSERT, "UPDATE": RowKind.UPDATE_AFTER, "DELETE": RowKind.DELETE}
_OTHER = -1
_TABLE = (NestedField(0, "database", StringType()), NestedField(0, "table", StringType()))
_NAMES = JsonColumns(_TABLE, JsonOptions(), strict_names=False)
_WATERMARK = "TIDB_WATERMARK"


class CanalJson:
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
            raise InvalidOptionError(f"canal-json has no options, but '{next(iter(options))}' is set")
        self._arrow = changes_schema(schema)
        converters = {part.name: _converter(part.type) for part in schema.fields}
        self._reader = RowReader(
            schema, converters, key, None, routes=routes, partial_update=partial_update, watch=watch
        )
        old = NestedField(0, "old", ListType(0, key_type(self._reader)))
        fields = [
            NestedField(0, "data", ListType(0, self._reader.physical)),
            NestedField(0, "type", StringType()),
            NestedField(0, "isDdl", BooleanType()),
            NestedField(0, "es", LongType()),
            NestedField(0, "_tidb", StructType((NestedField(0, "commitTs", LongType()),))),
            *_TABLE,
        ]
        self._columns = JsonColumns(
            [*fields, old] if self._reader.placing else fields,
            JsonOptions(),
            strict_names=False,
            **watching(watch, ("data",)),
        )

    def bulk(self, records: Records) -> Changes:
        """See Envelope.bulk."""
        data, types, ddl, es, tidb, database, table, *olds = self._columns.read(records.values)
        kinds = kind_codes(types, _KINDS, _OTHER)
        sequence = pc.coalesce(tidb.field(0), es)
        counts = data.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        others = (kinds == _OTHER) | (counts == 0) | ddl.fill_null(False).to_numpy(zero_copy_only=False)
        is_change = kinds != _OTHER
        names = joined_names(None, [database, table])
        brings = is_change & (kinds != RowKind.DELETE)
        others[is_change] |= self._check.foreign(
            names.filter(pa.array(is_change)), (brings & ~others)[is_change]
        )
        rows = data.flatten()
        if rows.null_count:
            raise NotBulkError
        parents: Array = np.repeat(np.arange(len(records)), counts)
        others[parents[self._reader.unclear(rows) & brings[parents]]] = True
        lacking = self._reader.lacks(rows, self._reader.routes)
        others[parents[lacking & (kinds == RowKind.DELETE)[parents]]] = True
        if olds:
            updates = (kinds == RowKind.UPDATE_AFTER) & ~others
            has_old = olds[0].is_valid().to_numpy(zero_copy_only=False)
            old_counts = olds[0].value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            if (old_counts != counts)[updates & has_old].any():
                raise NotBulkError
            compared = np.flatnonzero((updates & has_old)[parents])
            old_rows = olds[0].take(pa.array(np.flatnonzero(updates & has_old), pa.int64())).flatten()
            left, entered = self._reader.key_changes(old_rows, rows.take(pa.array(compared, pa.int64())))
            at = parents[compared]
            others[at[left | (entered & has_nulls(self._reader, records.values)[at])]] = True
        of_rows = np.where(others, _OTHER, kinds)[parents]
        of_record = sequence.take(pa.array(parents, pa.int64()))
        parts = self._reader.parts(rows, of_rows, of_record, records.places[parents])
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
        sequence = _sequence(found)
        name = joined_name(None, [found.get("database"), found.get("table")])
        if type_ == "TRUNCATE":
            if not self._check.empties(name):
                return Outcome(ignored=OTHER_TABLE)
            return Outcome(truncate=(name, sequence))
        if found.get("isDdl") is True:
            return Outcome(ignored="schema change")
        if type_ == _WATERMARK:
            return Outcome(ignored="watermark")
        if not isinstance(type_, str) or type_ not in _KINDS:
            raise FieldError(f"'type' is {type_!r}, which is not a change of Canal")
        if not self._check.takes(name):
            return Outcome(ignored=OTHER_TABLE)
        rows, olds = found.get("data"), found.get("old")
        if not isinstance(rows, list) or not rows:
            raise FieldError("'data' is needed, but it is no array of rows")
        if olds is None or type_ != "UPDATE":
            olds = [None] * len(rows)
        if not isinstance(olds, list) or len(olds) != len(rows):
            raise FieldError("'old' has not as many rows as 'data'")
        changes = []
        for row, old in zip(rows, olds, strict=True):
            changes += row_changes(self._reader, _KINDS[type_], row, old, sequence, "data")
        (self._check.went_one if type_ == "DELETE" else self._check.came_one)(name)
        return Outcome(changes=changes)

    def tombstone(self, key: bytes | None) -> Outcome | None:
        """See Envelope.tombstone."""
        return None


def _sequence(found: Mapping[str, Any]) -> int | None:
    tidb = found.get("_tidb")
    for value in (tidb.get("commitTs") if isinstance(tidb, dict) else None, found.get("es")):
        if value is not None:
            number = whole_number(value)
            if not -(1 << 63) <= number < 1 << 63:
                raise FieldError(f"'es' is {number}, which is not a time")
            return number
    return None


def _converter(type_: IcebergType) -> Converter:
    if isinstance(type_, (IntegerType, LongType)):
        return TextWhole(type_)
    if isinstance(type_, (FloatType, DoubleType)):
        return TextReal(type_)
    if isinstance(type_, BooleanType):
        return TextTruth()
    if isinstance(type_, (BinaryType, FixedType)):
        return Latin1(type_)
    if not type_.is_primitive:
        return Refused(type_, "Canal writes no nested values")
    return Plain(type_, "text is needed")
