"""The types of the Iceberg specification (Schemas and Data Types), as frozen values.

`str(type)` is the type's text in the specification ("decimal(9, 2)", "fixed[16]", "struct<...>"). Values of these
types live in one Python domain everywhere in streamlake: date as days, time as microseconds, timestamps as
microseconds (or nanoseconds for the `_ns` types) since 1970-01-01, decimals as `decimal.Decimal`, uuid as
`uuid.UUID`, fixed and binary as `bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class IcebergType:
    """Any type of the specification, primitive or nested."""

    __slots__ = ()

    @property
    def is_primitive(self) -> bool:
        return isinstance(self, PrimitiveType)


class PrimitiveType(IcebergType):
    """A type without parts."""

    __slots__ = ()


@dataclass(frozen=True)
class BooleanType(PrimitiveType):
    def __str__(self) -> str:
        return "boolean"


@dataclass(frozen=True)
class IntegerType(PrimitiveType):
    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True)
class LongType(PrimitiveType):
    def __str__(self) -> str:
        return "long"


@dataclass(frozen=True)
class FloatType(PrimitiveType):
    def __str__(self) -> str:
        return "float"


@dataclass(frozen=True)
class DoubleType(PrimitiveType):
    def __str__(self) -> str:
        return "double"


@dataclass(frozen=True)
class DecimalType(PrimitiveType):
    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 0 < self.precision <= 38 or not 0 <= self.scale <= self.precision:
            raise ValueError(
                f"decimal({self.precision}, {self.scale}): precision is 1..38, scale 0..precision"
            )

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True)
class DateType(PrimitiveType):
    def __str__(self) -> str:
        return "date"


@dataclass(frozen=True)
class TimeType(PrimitiveType):
    def __str__(self) -> str:
        return "time"


@dataclass(frozen=True)
class TimestampType(PrimitiveType):
    def __str__(self) -> str:
        return "timestamp"


@dataclass(frozen=True)
class TimestamptzType(PrimitiveType):
    def __str__(self) -> str:
        return "timestamptz"


@dataclass(frozen=True)
class TimestampNsType(PrimitiveType):
    def __str__(self) -> str:
        return "timestamp_ns"


@dataclass(frozen=True)
class TimestamptzNsType(PrimitiveType):
    def __str__(self) -> str:
        return "timestamptz_ns"


@dataclass(frozen=True)
class StringType(PrimitiveType):
    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True)
class UUIDType(PrimitiveType):
    def __str__(self) -> str:
        return "uuid"


@dataclass(frozen=True)
class FixedType(PrimitiveType):
    length: int

    def __str__(self) -> str:
        return f"fixed[{self.length}]"


@dataclass(frozen=True)
class BinaryType(PrimitiveType):
    def __str__(self) -> str:
        return "binary"


@dataclass(frozen=True)
class UnknownType(PrimitiveType):
    def __str__(self) -> str:
        return "unknown"


@dataclass(frozen=True)
class VariantType(PrimitiveType):
    def __str__(self) -> str:
        return "variant"


@dataclass(frozen=True)
class GeometryType(PrimitiveType):
    crs: str | None = None

    def __str__(self) -> str:
        return "geometry" if self.crs is None else f"geometry({self.crs})"


@dataclass(frozen=True)
class GeographyType(PrimitiveType):
    crs: str | None = None
    algorithm: str | None = None

    def __str__(self) -> str:
        inside = ", ".join(part for part in (self.crs, self.algorithm) if part is not None)
        return f"geography({inside})" if inside else "geography"


@dataclass(frozen=True)
class NestedField:
    """A field of a struct; `field_id` is unique in the table and never reused."""

    field_id: int
    name: str
    type: IcebergType
    required: bool = False
    doc: str | None = None
    initial_default: Any = None
    write_default: Any = None

    @property
    def optional(self) -> bool:
        return not self.required

    def __str__(self) -> str:
        kind = "required" if self.required else "optional"
        return f"{self.field_id}: {self.name}: {kind} {self.type}"


@dataclass(frozen=True)
class StructType(IcebergType):
    fields: tuple[NestedField, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(str(field) for field in self.fields)}>"


@dataclass(frozen=True)
class ListType(IcebergType):
    element_id: int
    element_type: IcebergType
    element_required: bool = False

    @property
    def element(self) -> NestedField:
        return NestedField(self.element_id, "element", self.element_type, self.element_required)

    def __str__(self) -> str:
        return f"list<{self.element_type}>"


@dataclass(frozen=True)
class MapType(IcebergType):
    key_id: int
    key_type: IcebergType
    value_id: int
    value_type: IcebergType
    value_required: bool = False

    @property
    def key(self) -> NestedField:
        return NestedField(self.key_id, "key", self.key_type, True)

    @property
    def value(self) -> NestedField:
        return NestedField(self.value_id, "value", self.value_type, self.value_required)

    def __str__(self) -> str:
        return f"map<{self.key_type}, {self.value_type}>"


def children(type_: IcebergType) -> tuple[NestedField, ...]:
    """The direct parts of a nested type as fields; empty for a primitive."""
    if isinstance(type_, StructType):
        return type_.fields
    if isinstance(type_, ListType):
        return (type_.element,)
    if isinstance(type_, MapType):
        return (type_.key, type_.value)
    return ()
