"""Kafka Connect's schemas, which JSON records carry (`schemas.enable`), and their Iceberg schemas.

A Connect schema gives a field's physical type and, by its name, what the value means. Invariant:
`iceberg_schema_of` chooses a type that holds every value of the field without loss: text or numbers where
Iceberg has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema, assign_fresh_ids

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
GEOMETRIES = frozenset(f"io.debezium.data.geometry.{kind}" for kind in ("Geometry", "Geography", "Point"))
_MAX_DIGITS = 38
_PLAIN: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int8": IntegerType(),
    "int16": IntegerType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "float32": FloatType(),
    "double": DoubleType(),
    "float64": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_LOGICAL: dict[str, IcebergType] = {
    "io.debezium.time.Date": DateType(),
    "org.apache.kafka.connect.data.Date": DateType(),
    "io.debezium.time.IsoDate": StringType(),
    "io.debezium.time.Time": TimeType(),
    "io.debezium.time.MicroTime": TimeType(),
    "org.apache.kafka.connect.data.Time": TimeType(),
    "io.debezium.time.Timestamp": TimestampType(),
    "io.debezium.time.MicroTimestamp": TimestampType(),
    "org.apache.kafka.connect.data.Timestamp": TimestampType(),
    "io.debezium.time.ZonedTimestamp": TimestamptzType(),
    "io.debezium.data.Uuid": UUIDType(),
    VARIABLE_SCALE: StringType(),
    **{name: BinaryType() for name in GEOMETRIES},
}
"""Schema names that mean another type than the physical one.

NanoTimestamp depends on the format version. Names that are not here keep their physical type: NanoTime,
MicroDuration and Year as numbers; Json, Xml, Enum, EnumSet, Interval and ZonedTime as text; Bits as bytes.
"""


@dataclass(frozen=True)
class ConnectSchema:
    """A schema: `type` is Connect's word ("int64", "struct", "array"), `name` the logical or record name."""

    type: str
    name: str | None = None
    optional: bool = True
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, ConnectSchema] = field(default_factory=dict)
    items: ConnectSchema | None = None
    keys: ConnectSchema | None = None

    @staticmethod
    def of(found: Any) -> ConnectSchema:
        """The schema in the JSON of a record's "schema". Raises ValueError when it is not valid."""
        try:
            return ConnectSchema._parsed(found)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("the record's schema is not a Kafka Connect schema") from error

    @staticmethod
    def _parsed(found: Any) -> ConnectSchema:
        if not isinstance(found, dict) or not isinstance(found.get("type"), str):
            raise ValueError("the record's schema is not a Kafka Connect schema")
        if not isinstance(found.get("name"), (str, type(None))):
            raise ValueError("the record's schema has a name that is not text")
        type_ = found["type"]
        if type_ not in _PLAIN and type_ not in ("struct", "array", "map"):
            raise ValueError(f"the record's schema has the type '{type_}', which Kafka Connect does not have")
        parts = found.get("fields") or [] if type_ == "struct" else []
        return ConnectSchema(
            type=type_,
            name=found.get("name"),
            optional=found.get("optional") is True,
            parameters={name: str(value) for name, value in (found.get("parameters") or {}).items()},
            fields={part["field"]: ConnectSchema.of(part) for part in parts},
            items=ConnectSchema.of(found["items"] if type_ == "array" else found["values"])
            if type_ in ("array", "map")
            else None,
            keys=ConnectSchema.of(found["keys"]) if type_ == "map" else None,
        )

    @property
    def scale(self) -> int:
        """The scale of a Decimal. Raises ValueError when the schema has none."""
        return int(self.parameters["scale"]) if "scale" in self.parameters else _no_scale()


def iceberg_schema_of(connect: ConnectSchema, *, format_version: int = 2) -> Schema:
    """A table's schema, ids from 1, for rows of a Connect struct (in an envelope the schema of "after").

    Fields that are not optional are required. Raises ValueError for another type than a struct.
    """
    if connect.type != "struct":
        raise ValueError(f"rows need a struct, but the schema is '{connect.type}'")
    ids = count(1)
    return Schema(assign_fresh_ids(_fields(connect, format_version), lambda: next(ids)))


def iceberg_type_of(connect: ConnectSchema, *, format_version: int = 2) -> IcebergType:
    """The type that holds every value of a field without loss; parts of nested types have the id 0.

    Decimals of more than 38 digits or without a fixed scale become text, as do values without an Iceberg
    type. Nanoseconds become timestamp_ns from format version 3 on; before, they stay numbers.
    """
    if connect.name == DECIMAL:
        return _decimal(connect)
    if connect.name == "io.debezium.time.NanoTimestamp":
        return TimestampNsType() if format_version >= 3 else LongType()
    logical = _LOGICAL.get(connect.name or "")
    if logical is not None:
        return logical
    if connect.type == "struct":
        return StructType(_fields(connect, format_version))
    if connect.items is None:
        return _PLAIN[connect.type]
    inner = iceberg_type_of(connect.items, format_version=format_version)
    if connect.keys is None:
        return ListType(0, inner, not connect.items.optional)
    return MapType(
        0,
        iceberg_type_of(connect.keys, format_version=format_version),
        0,
        inner,
        not connect.items.optional,
    )


def _fields(connect: ConnectSchema, format_version: int) -> tuple[NestedField, ...]:
    return tuple(
        NestedField(0, name, iceberg_type_of(part, format_version=format_version), not part.optional)
        for name, part in connect.fields.items()
    )


def _decimal(connect: ConnectSchema) -> IcebergType:
    scale = connect.scale
    precision = int(connect.parameters.get("connect.decimal.precision", _MAX_DIGITS))
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return DecimalType(precision, scale) if 0 < precision <= _MAX_DIGITS else StringType()


def _no_scale() -> int:
    raise ValueError("the record's schema has a decimal without a scale")
