"""Iceberg types as Avro schemas (spec: Appendix A, Avro).

Used for manifests, manifest lists and Avro data files. Schemas are JSON values, with field ids where the spec
requires them. Invariant: names that Avro does not allow are replaced as Iceberg replaces them, so that both
find the same columns.
"""

from __future__ import annotations

from typing import Any

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
    PrimitiveType,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

Json = Any

_PRIMITIVES: dict[type[IcebergType], Json] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    UnknownType: "null",
    DateType: {"type": "int", "logicalType": "date"},
    TimeType: {"type": "long", "logicalType": "time-micros"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    TimestamptzType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    TimestampNsType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    TimestamptzNsType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
}


def decimal_size(precision: int) -> int:
    """The fewest bytes whose two's complement holds every unscaled value of `precision` digits."""
    return (int(10**precision) - 1).bit_length() // 8 + 1


def avro_name(name: str) -> str:
    """`name` if Avro allows it; otherwise disallowed characters become `_xHEX` (a leading digit: `_1`)."""
    if not name:
        raise FeatureUnsupportedError("a column without a name has no Avro form; rename it")
    if name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit():
        return name
    return "".join(_name_part(char, first=at == 0) for at, char in enumerate(name))


def _name_part(char: str, *, first: bool) -> str:
    single = ord(char) <= 0xFFFF
    if char == "_" or (single and (char.isalpha() or (char.isdecimal() and not first))):
        return char
    if single and char.isdecimal():
        return f"_{char}"
    return "".join(f"_x{unit:X}" for unit in _utf16_units(char))


def _utf16_units(char: str) -> list[int]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]


def record_schema(struct: StructType, name: str) -> dict[str, Json]:
    """The Avro record of a struct, with field ids; `name` is the record's own name."""
    return _Conversion().record(struct, name)


class _Conversion:
    """State while one schema is built: Avro defines a named type once and refers to it by name after that."""

    def __init__(self) -> None:
        self._fixed: set[str] = set()

    def record(self, struct: StructType, name: str) -> dict[str, Json]:
        return {"type": "record", "name": name, "fields": [self.field(part) for part in struct.fields]}

    def field(self, part: NestedField) -> dict[str, Json]:
        name = avro_name(part.name)
        out: dict[str, Json] = {
            "name": name,
            "type": self.value(part.type, part.field_id, required=part.required),
        }
        if not part.required:
            out["default"] = None
        if name != part.name:
            out["iceberg-field-name"] = part.name
        out["field-id"] = part.field_id
        return out

    def value(self, type_: IcebergType, field_id: int, *, required: bool) -> Json:
        schema = self.type(type_, field_id)
        return schema if required or schema == "null" else ["null", schema]

    def type(self, type_: IcebergType, field_id: int) -> Json:
        if isinstance(type_, StructType):
            return self.record(type_, f"r{field_id}")
        if isinstance(type_, ListType):
            items = self.value(type_.element_type, type_.element_id, required=type_.element_required)
            return {"type": "array", "items": items, "element-id": type_.element_id}
        if isinstance(type_, MapType):
            return self.map(type_)
        if isinstance(type_, PrimitiveType):
            return self.primitive(type_)
        raise FeatureUnsupportedError(f"the type {type_} has no Avro form")

    def map(self, type_: MapType) -> Json:
        value = self.value(type_.value_type, type_.value_id, required=type_.value_required)
        if isinstance(type_.key_type, StringType):
            return {"type": "map", "values": value, "key-id": type_.key_id, "value-id": type_.value_id}
        pair = {
            "type": "record",
            "name": f"k{type_.key_id}_v{type_.value_id}",
            "fields": [
                {"name": "key", "type": self.type(type_.key_type, type_.key_id), "field-id": type_.key_id},
                {
                    "name": "value",
                    "type": value,
                    **({} if type_.value_required else {"default": None}),
                    "field-id": type_.value_id,
                },
            ],
        }
        return {"type": "array", "logicalType": "map", "items": pair}

    def primitive(self, type_: PrimitiveType) -> Json:
        if isinstance(type_, DecimalType):
            extra = {"logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
            return self.fixed(
                f"decimal_{type_.precision}_{type_.scale}", decimal_size(type_.precision), extra
            )
        if isinstance(type_, UUIDType):
            return self.fixed("uuid_fixed", 16, {"logicalType": "uuid"})
        if isinstance(type_, FixedType):
            return self.fixed(f"fixed_{type_.length}", type_.length, {})
        try:
            return _PRIMITIVES[type(type_)]
        except KeyError:
            raise FeatureUnsupportedError(f"columns of type {type_} are not written to Avro files") from None

    def fixed(self, name: str, size: int, extra: dict[str, Json]) -> Json:
        if name in self._fixed:
            return name
        self._fixed.add(name)
        return {"type": "fixed", "name": name, "size": size, **extra}
