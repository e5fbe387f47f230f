"""Check for PostgreSQL columns in which Debezium sends null for unavailable values, by a sample of records.

Used by `streamlake check`. For most types that can be stored out of line (TOASTed), an update that leaves the
value unchanged comes with the placeholder, see `unavailable`. For these columns it comes with null, which
cannot be distinguished from a real null. With REPLICA IDENTITY FULL the value itself comes. Invariant: a
record with the whole before image shows that this is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from streamlake.decode.cdc.debezium.debezium_parts import debezium_parts
from streamlake.decode.values.connect_schema import DECIMAL, GEOMETRIES, VARIABLE_SCALE, ConnectSchema
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
)
from streamlake.spec.types.schema import Schema

EVENTS = ("debezium-json", "debezium-avro")
"""The formats with images before and after a change."""
_CONNECTOR = "postgresql"
_BINARY_MODE = "debezium.binary-handling-mode"
_BITS = "io.debezium.data.Bits"
_POINT = "io.debezium.data.geometry.Point"
_INLINE_BITS = 192
"""No value this short is stored out of line."""
_ITEMS = frozenset({None, "io.debezium.data.Json", "io.debezium.data.Uuid", "io.debezium.time.Date"})
"""Logical names of elements whose arrays have a placeholder; so have those of the following types."""
_ITEM_TYPES = frozenset({"string", "bytes", "int32", "int64"})
_NULLED_ITEMS: tuple[type[IcebergType], ...] = (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
)


def nulled_columns(
    format: str, values: Iterable[bytes], options: Mapping[str, str], table: Schema
) -> tuple[str, ...]:
    """The columns of `table` that lose a value this way, by the values of some records.

    None where no update shows that the before image is left out.
    """
    if format not in EVENTS:
        return ()
    form = debezium_parts(format, options)[1]
    binary = options.get(_BINARY_MODE, "bytes")
    found: dict[str, None] = {}
    for value in values:
        with suppress(ValueError):  # the decoder reports records that cannot be read
            payload, connect = form.payload(value)
            if isinstance(payload, dict) and is_bare_update(payload):
                found.update(dict.fromkeys(_nulled(connect, table, binary)))
    return tuple(name for name in table.column_names if name in found)


def is_bare_update(payload: Mapping[str, Any]) -> bool:
    """Whether an event is an update of PostgreSQL that comes without the row before."""
    source = payload.get("source")
    connector = source.get("connector") if isinstance(source, dict) else None
    return payload.get("op") == "u" and payload.get("before") is None and connector == _CONNECTOR


def _nulled(connect: ConnectSchema | None, table: Schema, binary: str) -> Iterable[str]:
    """The columns of one record; `binary` is the connector's binary.handling.mode as it was given.

    Bytes that the connector sends as base64 text have no placeholder; as bytes and as hex text they have one.
    """
    row = None if connect is None else connect.fields.get("after")
    of_bytes = {part.name for part in table.fields if isinstance(part.type, (BinaryType, FixedType))}
    if row is None:
        return [
            part.name
            for part in table.fields
            if (isinstance(part.type, ListType) and isinstance(part.type.element_type, _NULLED_ITEMS))
            or (part.name in of_bytes and binary == "base64")
        ]
    return [
        name
        for name, part in row.fields.items()
        if _is_nulled(part)
        or (name in of_bytes and binary != "hex" and part.type == "string" and part.name is None)
    ]


def _is_nulled(part: ConnectSchema) -> bool:
    if part.name == _BITS:
        length = part.parameters.get("length", "")
        return not length.isdigit() or int(length) > _INLINE_BITS
    if part.name in GEOMETRIES:
        return part.name != _POINT
    if part.name == DECIMAL or part.type != "array" or part.items is None:
        return part.name == VARIABLE_SCALE
    return part.items.name not in _ITEMS or part.items.type not in _ITEM_TYPES
