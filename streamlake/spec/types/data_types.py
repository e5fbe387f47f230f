"""The types of the Iceberg specification (Schemas and Data Types), as frozen values.

`str(type)` is the type's text in the specification ("decimal(9, 2)", "fixed[16]", "struct<...>"). Values of
these types live in one Python domain everywhere in streamlake: date as days, time as microseconds, timestamps
as microseconds (or nanoseconds for the `_ns` types) since 1970-01-01, decimals as `decimal.Decimal`, uuid as
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
        """Whether the type has no parts."""
        return isinstance(self, PrimitiveType)


class PrimitiveType(IcebergType):
    """A type without parts."""

    __slots__ = ()


@dataclass(frozen=True)
class BooleanType(PrimitiveType):
    """The type `boolean`: True or False."""

    def __str__(self) -> str:
        return "boolean"


@dataclass(frozen=True)
class IntegerType(PrimitiveType):
    """The type `int`: 32-bit signed integers."""

    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True)
class LongType(PrimitiveType):
    """The type `long`: 64-bit signed integers."""

    def __str__(self) -> str:
        return "long"


@dataclass(frozen=True)
class FloatType(PrimitiveType):
    """The type `float`: 32-bit IEEE 754 numbers."""

    def __str__(self) -> str:
        return "float"


@dataclass(frozen=True)
class DoubleType(PrimitiveType):
    """The type `double`: 64-bit IEEE 754 numbers."""

    def __str__(self) -> str:
        return "double"


@dataclass(frozen=True)
class DecimalType(PrimitiveType):
    """The type `decimal(precision, scale)`.

    Raises ValueError unless precision is 1..38 and scale 0..precision.
    """

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
    """The type `date`: days since 1970-01-01, without time zone."""

    def __str__(self) -> str:
        return "date"


@dataclass(frozen=True)
class TimeType(PrimitiveType):
    """The type `time`: microseconds since midnight, without time zone."""

    def __str__(self) -> str:
        return "time"


@dataclass(frozen=True)
class TimestampType(PrimitiveType):
    """The type `timestamp`: microseconds since 1970-01-01 00:00, without time zone."""

    def __str__(self) -> str:
        return "timestamp"


@dataclass(frozen=True)
class TimestamptzType(PrimitiveType):
    """The type `timestamptz`: microseconds since 1970-01-01 00:00 UTC."""

    def __str__(self) -> str:
        return "timestamptz"


@dataclass(frozen=True)
class TimestampNsType(PrimitiveType):
    """The type `timestamp_ns` of format version 3: nanoseconds since 1970-01-01 00:00, without time zone."""

    def __str__(self) -> str:
        return "timestamp_ns"


@dataclass(frozen=True)
class TimestamptzNsType(PrimitiveType):
    """The type `timestamptz_ns` of format version 3: nanoseconds since 1970-01-01 00:00 UTC."""

    def __str__(self) -> str:
        return "timestamptz_ns"


@dataclass(frozen=True)
class StringType(PrimitiveType):
    """The type `string`: Unicode text."""

    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True)
class UUIDType(PrimitiveType):
    """The type `uuid`."""

    def __str__(self) -> str:
        return "uuid"


@dataclass(frozen=True)
class FixedType(PrimitiveType):
    """The type `fixed[length]`: byte strings of one length."""

    length: int

    def __str__(self) -> str:
        return f"fixed[{self.length}]"


@dataclass(frozen=True)
class BinaryType(PrimitiveType):
    """The type `binary`: byte strings of any length."""

    def __str__(self) -> str:
        return "binary"


@dataclass(frozen=True)
class UnknownType(PrimitiveType):
    """The type `unknown` of format version 3, of columns that are always null."""

    def __str__(self) -> str:
        return "unknown"


@dataclass(frozen=True)
class VariantType(PrimitiveType):
    """The type `variant` of format version 3: semi-structured values."""

    def __str__(self) -> str:
        return "variant"


@dataclass(frozen=True)
class GeometryType(PrimitiveType):
    """The type `geometry` of format version 3, with a coordinate reference system (None: the default)."""

    crs: str | None = None

    def __str__(self) -> str:
        return "geometry" if self.crs is None else f"geometry({self.crs})"


@dataclass(frozen=True)
class GeographyType(PrimitiveType):
    """The type `geography` of format version 3.

    It has a coordinate reference system and an edge algorithm (None: the defaults).
    """

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
        """Whether the field may be null."""
        return not self.required

    def __str__(self) -> str:
        kind = "required" if self.required else "optional"
        return f"{self.field_id}: {self.name}: {kind} {self.type}"


@dataclass(frozen=True)
class StructType(IcebergType):
    """A struct: fields with names and ids, in order."""

    fields: tuple[NestedField, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(str(field) for field in self.fields)}>"


@dataclass(frozen=True)
class ListType(IcebergType):
    """A list: elements of one type, with the field id of the element."""

    element_id: int
    element_type: IcebergType
    element_required: bool = False

    @property
    def element(self) -> NestedField:
        """The element as a field named `element`."""
        return NestedField(self.element_id, "element", self.element_type, self.element_required)

    def __str__(self) -> str:
        return f"list<{self.element_type}>"


@dataclass(frozen=True)
class MapType(IcebergType):
    """A map: keys and values of one type each, with their field ids. Keys are always required."""

    key_id: int
    key_type: IcebergType
    value_id: int
    value_type: IcebergType
    value_required: bool = False

    @property
    def key(self) -> NestedField:
        """The key as a required field named `key`."""
        return NestedField(self.key_id, "key", self.key_type, True)

    @property
    def value(self) -> NestedField:
        """The value as a field named `value`."""
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
