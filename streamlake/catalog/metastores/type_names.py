"""Hive's names of Iceberg's types, under which Glue and Hive show a table's columns. They decide nothing."""

from __future__ import annotations

from streamlake.spec.types.data_types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
    VariantType,
)

_NAMES: dict[type[IcebergType], str] = {
    IntegerType: "int",
    LongType: "bigint",
    DateType: "date",
    TimeType: "string",
    StringType: "string",
    UUIDType: "string",
    TimestampType: "timestamp",
    TimestampNsType: "timestamp",
    TimestamptzType: "timestamp",
    TimestamptzNsType: "timestamp",
    FixedType: "binary",
    BinaryType: "binary",
    VariantType: "unknown",
}
_LOCAL_TIME = "timestamp with local time zone"


def hive_type(type_: IcebergType, *, local_time: bool = False) -> str:
    """The name of a type, such as `array<struct<a:int,b:string>>`.

    `local_time`: zoned timestamps have a type of their own, as in Hive 3.
    """
    if isinstance(type_, StructType):
        parts = (f"{part.name}:{hive_type(part.type, local_time=local_time)}" for part in type_.fields)
        return f"struct<{','.join(parts)}>"
    if isinstance(type_, ListType):
        return f"array<{hive_type(type_.element_type, local_time=local_time)}>"
    if isinstance(type_, MapType):
        key = hive_type(type_.key_type, local_time=local_time)
        return f"map<{key},{hive_type(type_.value_type, local_time=local_time)}>"
    if isinstance(type_, DecimalType):
        return f"decimal({type_.precision},{type_.scale})"
    if local_time and isinstance(type_, (TimestamptzType, TimestamptzNsType)):
        return _LOCAL_TIME
    return _NAMES.get(type(type_), str(type_).partition("(")[0])
