"""Conversion between Iceberg schemas and the Arrow schemas of pyarrow's ORC adapter (spec: Appendix A, ORC).

pyarrow carries ORC type attributes as Arrow field metadata. So field ids (`iceberg.id`) are stored as the
spec wants them, and so are the attributes that distinguish time, uuid and fixed from plain longs and
binaries.
"""

from __future__ import annotations

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_ids import arrow_parts, rebuilt, with_field_id
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import (
    BinaryType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema

_ID, _REQUIRED = "iceberg.id", "iceberg.required"


def orc_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema for an ORC writer. Raises FeatureUnsupportedError for types that cannot be written."""
    return pa.schema([_field(part) for part in schema.fields])


def schema_with_ids(orc: pa.Schema) -> pa.Schema:
    """The Arrow schema of an ORC file with its `iceberg.id` attributes as field ids."""
    return pa.schema([_identified(part) for part in orc])


def _field(part: NestedField) -> pa.Field:
    attributes = {_ID: str(part.field_id), _REQUIRED: str(part.required).lower(), **_attributes(part.type)}
    return pa.field(part.name, orc_type(part.type), nullable=not part.required, metadata=attributes)


def orc_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type of the values of an ORC column."""
    if isinstance(type_, StructType):
        return pa.struct([_field(part) for part in type_.fields])
    if isinstance(type_, ListType):
        return pa.list_(_field(type_.element))
    if isinstance(type_, MapType):
        return pa.map_(_field(type_.key), _field(type_.value))
    if isinstance(type_, TimeType):
        return pa.int64()
    if isinstance(type_, (UUIDType, FixedType)):
        return pa.binary()
    if isinstance(type_, UnknownType):
        raise FeatureUnsupportedError("columns of type unknown are not written; give the column a type")
    return arrow_type(type_)


def _attributes(type_: IcebergType) -> dict[str, str]:
    if isinstance(type_, LongType):
        return {"iceberg.long-type": "LONG"}
    if isinstance(type_, TimeType):
        return {"iceberg.long-type": "TIME"}
    if isinstance(type_, UUIDType):
        return {"iceberg.binary-type": "UUID"}
    if isinstance(type_, FixedType):
        return {"iceberg.binary-type": "FIXED", "iceberg.length": str(type_.length)}
    if isinstance(type_, BinaryType):
        return {"iceberg.binary-type": "BINARY"}
    if isinstance(type_, (TimestampType, TimestamptzType)):
        return {"iceberg.timestamp-unit": "MICROS"}
    if isinstance(type_, (TimestampNsType, TimestamptzNsType)):
        return {"iceberg.timestamp-unit": "NANOS"}
    return {}


def _identified(part: pa.Field) -> pa.Field:
    inner = [_identified(child) for child in arrow_parts(part.type)]
    typed = part.with_type(rebuilt(part.type, inner)) if inner else part
    text = (part.metadata or {}).get(_ID.encode())
    return typed.with_metadata(None) if text is None else with_field_id(typed, int(text))


def orc_leaf(array: pa.Array, type_: PrimitiveType) -> pa.Array:
    """The values of a leaf in the form that ORC stores."""
    target = orc_type(type_)
    if isinstance(type_, TimeType):
        return array.view(target)
    return array if array.type.equals(target) else array.cast(target)
