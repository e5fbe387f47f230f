"""Table schemas inferred from Avro schemas, used where neither the user nor a table defines the columns.

A field is optional when its type is a union with null. Logical types become Iceberg's: decimal, uuid, date,
time-*, timestamp-* (with time zone: an instant), local-timestamp-* (without). An enum becomes string, and
duration its 12 bytes. A union of several types becomes: int and long -> long, float and double -> double,
else a struct of optional fields member0, member1, ..., of which one is set, as Spark's own Avro functions do.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from streamlake.decode.avro.avro_schema import (
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from streamlake.errors import FeatureUnsupportedError
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema, assign_fresh_ids

_MAX_PRECISION = 38
_UUID_BYTES = 16

_PLAIN: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_LOGICAL: dict[tuple[str, str], IcebergType] = {
    ("int", "date"): DateType(),
    ("int", "time-millis"): TimeType(),
    ("long", "time-micros"): TimeType(),
    ("long", "timestamp-millis"): TimestamptzType(),
    ("long", "timestamp-micros"): TimestamptzType(),
    ("long", "timestamp-nanos"): TimestamptzNsType(),
    ("long", "local-timestamp-millis"): TimestampType(),
    ("long", "local-timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-nanos"): TimestampNsType(),
    ("string", "uuid"): UUIDType(),
}
_WITHOUT_ZONE: dict[IcebergType, IcebergType] = {
    TimestamptzType(): TimestampType(),
    TimestamptzNsType(): TimestampNsType(),
}


def schema_from_avro(avro: AvroType, where: str) -> Schema:
    """An Iceberg schema with ids from 1.

    Raises FeatureUnsupportedError, which names `where` and the field.
    """
    if not isinstance(avro, AvroRecord):
        raise FeatureUnsupportedError(
            f"{where}: the schema is {avro}, not a record; only records have columns. Use the format 'raw' "
            "for the bytes"
        )
    ids = count(1)
    fields = _fields(avro.fields, "", where)
    return Schema(assign_fresh_ids(fields, lambda: next(ids)))


def optional(type_: AvroType) -> bool:
    """Whether a value of the type can be null."""
    return type_.kind == "null" or (isinstance(type_, AvroUnion) and type_.nullable)


def member_types(union: AvroUnion) -> tuple[AvroType, ...] | None:
    """The types of member0, member1, ... of a union that becomes a struct; None for any other union."""
    kinds = {branch.kind for branch in union.others if branch.logical is None}
    if len(union.others) < 2:
        return None
    plain = all(branch.logical is None for branch in union.others)
    return None if plain and (kinds == {"int", "long"} or kinds == {"float", "double"}) else union.others


def _fields(fields: Iterable[AvroField], path: str, where: str) -> tuple[NestedField, ...]:
    return tuple(
        NestedField(
            0,
            part.name,
            _type(part.type, f"{path}{part.name}", where),
            not optional(part.type),
            part.doc,
        )
        for part in fields
    )


def _type(avro: AvroType, path: str, where: str) -> IcebergType:
    if isinstance(avro, AvroRecord):
        return StructType(_fields(avro.fields, f"{path}.", where))
    if isinstance(avro, AvroArray):
        return ListType(0, _type(avro.items, f"{path}.element", where), not optional(avro.items))
    if isinstance(avro, AvroMap):
        value = _type(avro.values, f"{path}.value", where)
        return MapType(0, StringType(), 0, value, not optional(avro.values))
    if isinstance(avro, AvroUnion):
        return _union(avro, path, where)
    if isinstance(avro, AvroEnum):
        return StringType()
    if avro.logical == "decimal" and avro.kind in ("bytes", "fixed"):
        return _decimal(avro, path, where)
    if isinstance(avro, AvroFixed):
        is_uuid = avro.logical == "uuid" and avro.size == _UUID_BYTES
        return UUIDType() if is_uuid else FixedType(avro.size)
    if avro.kind == "null":
        raise FeatureUnsupportedError(
            f"{where}: '{path}' is always null, which is not a column type; give a schema without it"
        )
    meant = _LOGICAL.get((avro.kind, avro.logical or ""), _PLAIN[avro.kind])
    # Iceberg's own files mark timestamps without a time zone with this property.
    return _WITHOUT_ZONE.get(meant, meant) if avro.properties.get("adjust-to-utc") is False else meant


def _union(avro: AvroUnion, path: str, where: str) -> IcebergType:
    members = member_types(avro)
    if members is not None:
        return StructType(
            tuple(
                NestedField(0, f"member{at}", _type(member, f"{path}.member{at}", where))
                for at, member in enumerate(members)
            )
        )
    if len(avro.others) > 1:
        wide = "long" if any(branch.kind == "long" for branch in avro.others) else "double"
        return _PLAIN[wide]
    return _type(avro.others[0] if avro.others else avro.branches[0], path, where)


def _decimal(avro: AvroType, path: str, where: str) -> DecimalType:
    precision, scale = avro.properties.get("precision"), avro.properties.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        raise FeatureUnsupportedError(f"{where}: '{path}' is a decimal without a precision")
    if not 0 < precision <= _MAX_PRECISION or not 0 <= scale <= precision:
        raise FeatureUnsupportedError(
            f"{where}: '{path}' is decimal({precision}, {scale}), but a table's decimals have 1 to "
            f"{_MAX_PRECISION} digits and a scale from 0 to that; give a schema that has it as binary, or as "
            "a decimal that its values fit"
        )
    return DecimalType(precision, scale)
