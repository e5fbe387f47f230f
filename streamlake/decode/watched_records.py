"""Decoders for tables that follow their stream: what records have that the table lacks, and of which types.

Made in the tasks that read, where `new_fields` says whether to look at all. A schema that comes with the records counts;
else types are what the values look like, as in `json_inference`, and text stays text.
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

from streamlake.decode.change_inference import shown_rows
from streamlake.decode.decoded import Decoder
from streamlake.decode.json_inference import infer_schema
from streamlake.decode.json_values import parse_object
from streamlake.decode.new_fields import Watch, WatchingDecoder, lacking, map_values, unknown_part
from streamlake.decode.record_limits import RecordLimits
from streamlake.decode.source_tables import SourceTables
from streamlake.spec.schema import Schema
from streamlake.spec.types import (
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

_INT, _LONG = 1 << 31, 1 << 63
_MAX_FLOAT = 3.4028234663852886e38
_DIGITS = (18, 38)
"""Of decimals that grow: what 64 bits hold, and the most that there are."""
_HEADER_BYTES = {"json": 0, "confluent-json": 5}
_WITHOUT_NAMES = ("raw", "avro", "confluent-avro")
"""Formats whose values are not looked at: they have no fields, or their schemas tell by themselves."""


def watching_decoder(
    decoder: Callable[[Watch | None], Decoder],
    format: str,
    known: Sequence[NestedField],
    watch: Watch,
    options: Mapping[str, str],
    tables: SourceTables | None = None,
) -> Decoder:
    """The decoder that `decoder` makes, with the watch over a table whose columns are `known`. Of changes only those of `tables`
    are looked at."""
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
        # The last schema counts, and what is lacking is in an earlier one.
        middle = raw.num_rows // 2
        return wanted(raw.slice(0, middle)) or wanted(raw.slice(middle))

    def outgrown(raw: pa.RecordBatch) -> Sequence[NestedField]:
        rows, schema = shown(raw) if watch.widen else ((), None)
        return _outgrown(rows, known) if schema is None else ()

    return WatchingDecoder(decoder(watch), lambda: decoder(None), wanted, outgrown, RecordLimits.of(options))


def _objects(raw: pa.RecordBatch, start: int) -> Sequence[Mapping[str, Any]]:
    found = []
    for value in raw.column("value").drop_null():
        with suppress(ValueError):  # a record that cannot be read is the decoder's business
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
    """The columns and parts of columns that some numbers are too large for, with the types that they fit into."""
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
    """The wider type for a number that does not fit; None where it does, or none would do."""
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
    """Inferred fields, in which the values of maps were arrays, with the maps that are known."""
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
