"""The Kafka Connect schema behind an Avro schema: the one that Connect's Avro converter started from.

Used for change events in Avro, which are then converted like those of JSON with schemas. The converter leaves
its names in properties (`connect.name`, `connect.parameters`, `connect.type`). A logical type of Avro counts
where they are missing. Invariant: a type that has no Connect schema (a union of several types) is refused,
never left out.
"""

from __future__ import annotations

from streamlake.decode.avro.avro_schema import (
    AvroArray,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from streamlake.decode.values.connect_schema import DECIMAL, ConnectSchema

_TYPES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "enum": "string",
    "bytes": "bytes",
    "fixed": "bytes",
}
_NAMES = {
    ("int", "date"): "org.apache.kafka.connect.data.Date",
    ("int", "time-millis"): "org.apache.kafka.connect.data.Time",
    ("long", "time-micros"): "io.debezium.time.MicroTime",
    ("long", "timestamp-millis"): "org.apache.kafka.connect.data.Timestamp",
    ("long", "local-timestamp-millis"): "org.apache.kafka.connect.data.Timestamp",
    ("long", "timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "local-timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "timestamp-nanos"): "io.debezium.time.NanoTimestamp",
    ("long", "local-timestamp-nanos"): "io.debezium.time.NanoTimestamp",
    ("string", "uuid"): "io.debezium.data.Uuid",
    ("bytes", "decimal"): DECIMAL,
    ("fixed", "decimal"): DECIMAL,
}
_PRECISION = "connect.decimal.precision"
_NO_PRECISION = 64
"""What the converter writes as the precision of a decimal without one."""


def connect_schema_of(avro: AvroType) -> ConnectSchema:
    """The Connect schema of an Avro type.

    Raises ValueError for a union of several types, and for a type that is always null.
    """
    value, optional = value_type(avro)
    name = _name(value)
    if isinstance(value, AvroRecord):
        fields = {part.name: connect_schema_of(part.type) for part in value.fields}
        return ConnectSchema("struct", name, optional, fields=fields)
    if isinstance(value, AvroArray):
        entry = map_entry(value)
        if entry is None:
            return ConnectSchema("array", name, optional, items=connect_schema_of(value.items))
        keys, items = (connect_schema_of(part.type) for part in entry.fields)
        return ConnectSchema("map", name, optional, items=items, keys=keys)
    if isinstance(value, AvroMap):
        keys = ConnectSchema("string", optional=False)
        return ConnectSchema("map", name, optional, items=connect_schema_of(value.values), keys=keys)
    type_ = value.properties.get("connect.type")
    return ConnectSchema(
        type_ if isinstance(type_, str) and value.kind == "int" else _TYPES[value.kind],
        name,
        optional,
        _parameters(value, name),
    )


def value_type(avro: AvroType) -> tuple[AvroType, bool]:
    """The type of the values that are not null, and whether null is allowed.

    Raises ValueError for several types.
    """
    if not isinstance(avro, AvroUnion):
        if avro.kind == "null":
            raise ValueError("the record's schema has a field that is always null")
        return avro, False
    if len(avro.others) != 1:
        raise ValueError(f"the record's schema has a {avro}, which Kafka Connect does not have")
    return avro.others[0], avro.nullable


def map_entry(array: AvroArray) -> AvroRecord | None:
    """The key-value record of an array that stands for a map with non-string keys; None for other arrays."""
    items = array.items
    if (
        isinstance(items, AvroRecord)
        and items.properties.get("connect.internal.type") == "MapEntry"
        and [part.name for part in items.fields] == ["key", "value"]
    ):
        return items
    return None


def _name(avro: AvroType) -> str | None:
    name = avro.properties.get("connect.name")
    if isinstance(name, str):
        return name
    if isinstance(avro, AvroRecord):
        return avro.name
    return _NAMES.get((avro.kind, avro.logical or ""))


def _parameters(avro: AvroType, name: str | None) -> dict[str, str]:
    given = avro.properties.get("connect.parameters")
    found = {key: str(value) for key, value in given.items()} if isinstance(given, dict) else {}
    if name == DECIMAL:
        found.setdefault("scale", str(avro.properties.get("scale", 0)))
        precision = avro.properties.get("precision")
        if isinstance(precision, int) and precision != _NO_PRECISION:
            found.setdefault(_PRECISION, str(precision))
    return found
