"""Conversion between Iceberg schemas and Arrow schemas.

Each Iceberg type has one Arrow type, which files hold and scans return. The field id is in the metadata key
that pyarrow writes into Parquet. In the other direction every Arrow type is accepted that fits an Iceberg
type without loss. Invariant: `schema_from_arrow` of `schema_to_arrow` gives the same types back, except for
uuid, which is 16 bytes in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError, SchemaMismatchError
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
    UnknownType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema, assign_fresh_ids

FIELD_ID_KEY = b"PARQUET:field_id"
DOC_KEY = b"doc"

_MAX_PRECISION = 38
_SIMPLE: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNsType: pa.timestamp("ns"),
    TimestamptzNsType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.binary(16),
    UnknownType: pa.null(),
}


def arrow_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type of an Iceberg type in memory; nested fields carry their ids.

    A uuid is 16 fixed bytes, because Arrow computes nothing on its uuid extension type. Raises
    FeatureUnsupportedError for variant, geometry and geography.
    """
    return _Conversion(uuid=pa.binary(16), field_ids=True).type(type_)


def schema_to_arrow(schema: Schema, *, field_ids: bool = True) -> pa.Schema:
    """The Arrow schema of rows in memory.

    Field ids are under `PARQUET:field_id`, unless `field_ids` is False.
    """
    return _Conversion(uuid=pa.binary(16), field_ids=field_ids).schema(schema)


def parquet_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema for a Parquet writer: as `schema_to_arrow`, but uuid has Parquet's UUID annotation.

    `pa.Table.cast` converts rows from one schema to the other without copying the bytes.
    """
    return _Conversion(uuid=pa.uuid(), field_ids=True).schema(schema)


class _Conversion:
    def __init__(self, *, uuid: pa.DataType, field_ids: bool) -> None:
        self._uuid = uuid
        self._field_ids = field_ids

    def schema(self, schema: Schema) -> pa.Schema:
        return pa.schema([self.field(part) for part in schema.fields])

    def field(self, part: NestedField) -> pa.Field:
        metadata = {FIELD_ID_KEY: str(part.field_id).encode()} if self._field_ids else None
        return pa.field(part.name, self.type(part.type), nullable=not part.required, metadata=metadata)

    def type(self, type_: IcebergType) -> pa.DataType:
        if isinstance(type_, UUIDType):
            return self._uuid
        simple = _SIMPLE.get(type(type_))
        if simple is not None:
            return simple
        if isinstance(type_, DecimalType):
            return pa.decimal128(type_.precision, type_.scale)
        if isinstance(type_, FixedType):
            return pa.binary(type_.length)
        if isinstance(type_, StructType):
            return pa.struct([self.field(part) for part in type_.fields])
        if isinstance(type_, ListType):
            return pa.list_(self.field(type_.element))
        if isinstance(type_, MapType):
            return pa.map_(self.field(type_.key), self.field(type_.value))
        raise FeatureUnsupportedError(
            f"columns of type {type_} are neither read nor written here; choose the other columns"
        )


def schema_from_arrow(arrow: pa.Schema | Iterable[pa.Field], *, format_version: int | None = None) -> Schema:
    """An Iceberg schema with fresh ids from 1 for Arrow fields; fields that are not nullable are required.

    With `format_version` below 3, nanosecond timestamps are refused. Raises FeatureUnsupportedError for a
    type that no Iceberg type holds without loss, SchemaMismatchError for duplicate or empty names; both name
    the column.
    """
    ids = count(1)
    fields = _fields(arrow, "", format_version)
    return Schema(assign_fresh_ids(fields, lambda: next(ids)))


def type_from_arrow(type_: pa.DataType, *, column: str, format_version: int | None = None) -> IcebergType:
    """The Iceberg type that holds every value of an Arrow type; the fields of nested types have id 0."""
    return _type(type_, column, format_version)


def _fields(fields: Iterable[pa.Field], prefix: str, version: int | None) -> tuple[NestedField, ...]:
    seen: set[str] = set()
    converted = []
    for part in fields:
        name = f"{prefix}{part.name}"
        if not part.name or part.name in seen:
            problem = (
                f"the column name '{name}' appears twice"
                if part.name
                else f"a column of '{prefix}' has no name"
            )
            raise SchemaMismatchError(f"{problem}; rename it before writing")
        seen.add(part.name)
        doc = (part.metadata or {}).get(DOC_KEY)
        converted.append(
            NestedField(
                0, part.name, _type(part.type, name, version), not part.nullable, doc and doc.decode()
            )
        )
    return tuple(converted)


def _type(type_: pa.DataType, column: str, version: int | None) -> IcebergType:
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _extension(type_, column, version)
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return _type(type_.value_type, column, version)
    for accepts, convert in _SCALARS:
        if accepts(type_):
            return convert
    if types.is_uint64(type_):
        return DecimalType(20, 0)
    if types.is_decimal(type_):
        return _decimal(type_, column)
    if types.is_fixed_size_binary(type_):
        return FixedType(type_.byte_width)
    if types.is_timestamp(type_):
        return _timestamp(type_, column, version)
    if types.is_struct(type_):
        parts = [type_.field(at) for at in range(type_.num_fields)]
        return StructType(_fields(parts, f"{column}.", version))
    if types.is_map(type_):
        key = _type(type_.key_type, f"{column}.key", version)
        value = _type(type_.item_type, f"{column}.value", version)
        return MapType(0, key, 0, value, not type_.item_field.nullable)
    if _is_list(type_):
        return ListType(
            0, _type(type_.value_type, f"{column}.element", version), not type_.value_field.nullable
        )
    raise _refused(column, type_, _ADVICE.get(type_.id, "cast it to a type that Iceberg has"))


def _is_text(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_))


def _is_list(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(type_)
        or types.is_large_list(type_)
        or types.is_fixed_size_list(type_)
        or types.is_list_view(type_)
        or types.is_large_list_view(type_)
    )


def _is_small_int(type_: pa.DataType) -> bool:
    """Whether all values fit a signed 32-bit integer."""
    types = pa.types
    if types.is_signed_integer(type_):
        return bool(type_.bit_width <= 32)
    return bool(types.is_unsigned_integer(type_) and type_.bit_width <= 16)


def _is_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_time(type_) and type_.unit != "ns")


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], IcebergType], ...] = (
    (pa.types.is_boolean, BooleanType()),
    (_is_small_int, IntegerType()),
    (lambda type_: pa.types.is_int64(type_) or pa.types.is_uint32(type_), LongType()),
    (lambda type_: pa.types.is_float16(type_) or pa.types.is_float32(type_), FloatType()),
    (pa.types.is_float64, DoubleType()),
    (_is_text, StringType()),
    (_is_bytes, BinaryType()),
    (pa.types.is_date, DateType()),
    (_is_time, TimeType()),
)
_ADVICE = {
    pa.null().id: "a column that is always null has no type; cast it to the type it is meant to have",
    pa.time64("ns").id: "Iceberg's time has microseconds; cast it to time64('us')",
    pa.duration("us").id: "cast it to int64",
    pa.month_day_nano_interval().id: "write its months, days and nanoseconds as three integers",
}


def _decimal(type_: pa.DataType, column: str) -> DecimalType:
    precision, scale = type_.precision, type_.scale
    if scale < 0:
        precision, scale = precision - scale, 0
    if max(precision, scale) > _MAX_PRECISION:
        raise _refused(column, type_, f"Iceberg's decimals have at most {_MAX_PRECISION} digits; cast it")
    return DecimalType(max(precision, scale), scale)


def _timestamp(type_: pa.DataType, column: str, version: int | None) -> IcebergType:
    with_zone = type_.tz is not None
    if type_.unit != "ns":
        return TimestamptzType() if with_zone else TimestampType()
    if version is not None and version < 3:
        raise _refused(column, type_, "cast it to microseconds, or create the table with format version 3")
    return TimestamptzNsType() if with_zone else TimestampNsType()


def _extension(type_: Any, column: str, version: int | None) -> IcebergType:
    name = type_.extension_name
    if name == "arrow.uuid":
        return UUIDType()
    if name == "arrow.bool8":
        return BooleanType()
    if name == "arrow.json":
        return _type(type_.storage_type, column, version)
    raise _refused(column, type_, f"cast it to its storage type {type_.storage_type}")


def _refused(column: str, type_: pa.DataType, advice: str) -> FeatureUnsupportedError:
    return FeatureUnsupportedError(
        f"column '{column}' has the Arrow type {type_}, which no Iceberg type holds without loss: {advice}"
    )
