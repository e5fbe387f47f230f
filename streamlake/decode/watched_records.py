"""Decoders for tables that follow their stream: they find new fields and wider types in records.

Made in the tasks that read; `new_fields` decides whether the records are examined at all. A schema that comes
with the records counts. Otherwise types follow from the values, as in `json_inference`, and text stays text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from streamlake.decode.cdc.change_inference import shown_rows
from streamlake.decode.cdc.source_tables import SourceTables
from streamlake.decode.json.json_inference import infer_schema
from streamlake.decode.json.json_values import parse_object
from streamlake.decode.values.decoded import Decoder
from streamlake.decode.values.new_fields import Watch, WatchingDecoder, lacking, map_values, unknown_part
from streamlake.decode.values.record_limits import RecordLimits
from streamlake.spec.types.data_types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)
from streamlake.spec.types.schema import Schema

_INT, _LONG = 1 << 31, 1 << 63
_MAX_FLOAT = 3.4028234663852886e38
_DIGITS = (18, 38)
"""Steps by which decimals grow: the digits that 64 bits hold, and the maximum."""
_HEADER_BYTES = {"json": 0, "confluent-json": 5}
_WITHOUT_NAMES = ("raw", "avro", "confluent-avro")
"""Formats whose values are not examined: they have no fields, or their schemas describe them."""


def watching_decoder(
    decoder: Callable[[Watch | None], Decoder],
    format: str,
    known: Sequence[NestedField],
    watch: Watch,
    options: Mapping[str, str],
    tables: SourceTables | None = None,
) -> Decoder:
    """The decoder that `decoder` makes, with the watch on a table whose columns are `known`.

    Of change streams, only changes of `tables` are examined.
    """
    if format in _WITHOUT_NAMES:
        return decoder(watch)

    def shown(raw: pa.RecordBatch) -> tuple[Sequence[Mapping[str, Any]], Schema | None]:
        if format in _HEADER_BYTES:
            return _objects(raw, _HEADER_BYTES[format]), None
        return _changed_rows(format, raw, options, tables)

    def wanted(raw: pa.RecordBatch) -> Sequence[NestedField]:
        rows, schema = shown(raw)
        if schema is None:
            return _inferred(rows, known, watch)
        fields = lacking(known, schema.fields, watch)
        if fields or raw.num_rows == 1:
            return fields
        # The last schema counts, so a missing field may only be in an earlier one: look at each half.
        middle = raw.num_rows // 2
        return wanted(raw.slice(0, middle)) or wanted(raw.slice(middle))

    def outgrown(raw: pa.RecordBatch) -> Sequence[NestedField]:
        rows, schema = shown(raw) if watch.widen else ((), None)
        return _outgrown(rows, known) if schema is None else ()

    return WatchingDecoder(decoder(watch), lambda: decoder(None), wanted, outgrown, RecordLimits.of(options))


def _objects(raw: pa.RecordBatch, start: int) -> Sequence[Mapping[str, Any]]:
    found = []
    for value in raw.column("value").drop_null():
        with suppress(ValueError):  # the decoder reports records that cannot be read
            found.append(parse_object(value.as_py()[start:]))
    return found


def _changed_rows(
    format: str, raw: pa.RecordBatch, options: Mapping[str, str], tables: SourceTables | None
) -> tuple[Sequence[Mapping[str, Any]], Schema | None]:
    values, keys = raw.column("value"), raw.column("key")
    places = [at for at in range(raw.num_rows) if values[at].is_valid]
    records = [(keys[at].as_py(), values[at].as_py()) for at in places]
    rows, schema, _ = shown_rows(format, records, options, tables)
    return rows, schema


def _outgrown(rows: Sequence[Mapping[str, Any]], known: Sequence[NestedField]) -> Sequence[NestedField]:
    """The columns, and parts of them, that some numbers are too large for, with types that they fit."""
    found = []
    for part in known:
        type_ = _outgrown_type(part.type, [row.get(part.name) for row in rows])
        if type_ is not None:
            found.append(replace(part, type=type_, required=True, initial_default=None, write_default=None))
    return found


def _outgrown_type(type_: IcebergType, values: Sequence[Any]) -> IcebergType | None:
    if isinstance(type_, StructType):
        parts = _outgrown([value for value in values if isinstance(value, dict)], type_.fields)
        return StructType(tuple(parts)) if parts else None
    if isinstance(type_, ListType):
        items = [item for value in values if isinstance(value, list) for item in value]
        inner = _outgrown_type(type_.element_type, items)
        return None if inner is None else replace(type_, element_type=inner, element_required=True)
    if isinstance(type_, MapType):
        inner = _outgrown_type(type_.value_type, [item for value in values for item in map_values(value)])
        return None if inner is None else replace(type_, value_type=inner, value_required=True)
    numbers = filter(_is_number, values)
    return next((wide for wide in map(partial(_wider, type_), numbers) if wide is not None), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _wider(type_: IcebergType, value: Any) -> IcebergType | None:
    """The wider type for a number that does not fit; None where it fits, or where no type would."""
    if isinstance(type_, IntegerType) and isinstance(value, int):
        return LongType() if not -_INT <= value < _INT and -_LONG <= value < _LONG else None
    if isinstance(type_, FloatType):
        return DoubleType() if abs(value) > _MAX_FLOAT else None
    if isinstance(type_, DecimalType):
        digits = len(str(abs(int(value)))) + type_.scale
        enough = (most for most in _DIGITS if type_.precision < digits <= most)
        return next((DecimalType(most, type_.scale) for most in enough), None)
    return None


def _inferred(
    rows: Sequence[Mapping[str, Any]], known: Sequence[NestedField], watch: Watch
) -> Sequence[NestedField]:
    parts = [part for part in (unknown_part(dict(row), known, watch) for row in rows) if part]
    if not parts:
        return ()
    found = infer_schema((json.dumps(part, default=float).encode() for part in parts), texts_are_text=True)
    return lacking(known, _with_maps(found.fields, known), replace(watch, widen=False))


def _with_maps(found: Sequence[NestedField], known: Sequence[NestedField]) -> tuple[NestedField, ...]:
    """Inferred fields, in which the values of maps are arrays, with the known maps put back."""
    types = {part.name: part.type for part in known}
    return tuple(
        replace(part, type=_with_map(part.type, types[part.name])) if part.name in types else part
        for part in found
    )


def _with_map(found: IcebergType, mine: IcebergType) -> IcebergType:
    if isinstance(found, StructType) and isinstance(mine, StructType):
        return StructType(_with_maps(found.fields, mine.fields))
    if isinstance(found, ListType) and isinstance(mine, ListType):
        return replace(found, element_type=_with_map(found.element_type, mine.element_type))
    if isinstance(found, ListType) and isinstance(mine, MapType):
        return replace(mine, value_type=_with_map(found.element_type, mine.value_type))
    return found
