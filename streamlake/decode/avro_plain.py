"""Avro values as Kafka Connect's JSON converter would write them: for records that are looked at one by one.

`plain_fields` are the columns in which `AvroDecoder` reads everything as it is encoded, without logical types, and
`plain_value` makes of a value in them what `json_values` knows: bytes are base64, numbers with a fraction are Decimals.
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

from streamlake.decode.avro_connect import map_entry, value_type
from streamlake.decode.avro_schema import AvroArray, AvroFixed, AvroMap, AvroRecord, AvroType
from streamlake.spec.types import (
    BinaryType,
    BooleanType,
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
)

_PLAIN: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "enum": StringType(),
    "bytes": BinaryType(),
}


def plain_fields(record: AvroRecord) -> tuple[NestedField, ...]:
    """One optional field for each of a record. Raises ValueError as `value_type`."""
    return tuple(NestedField(0, part.name, plain_type(part.type)) for part in record.fields)


def plain_type(avro: AvroType) -> IcebergType:
    """The type that holds values as they are encoded, all parts optional. Raises ValueError as `value_type`."""
    value, _ = value_type(avro)
    if isinstance(value, AvroRecord):
        return StructType(plain_fields(value))
    if isinstance(value, AvroArray):
        return ListType(0, plain_type(value.items))
    if isinstance(value, AvroMap):
        return MapType(0, StringType(), 0, plain_type(value.values))
    return FixedType(value.size) if isinstance(value, AvroFixed) else _PLAIN[value.kind]


def plain_value(avro: AvroType, found: Any) -> Any:
    """A value of JSON for one of Arrow's Python values of `plain_type(avro)`."""
    if found is None:
        return None
    value, _ = value_type(avro)
    if isinstance(value, AvroRecord):
        return {part.name: plain_value(part.type, found[part.name]) for part in value.fields}
    if isinstance(value, AvroArray):
        items = [plain_value(value.items, item) for item in found]
        return items if map_entry(value) is None else [[item["key"], item["value"]] for item in items]
    if isinstance(value, AvroMap):
        return {key: plain_value(value.values, item) for key, item in found}
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    return _number(found) if isinstance(found, float) else found


def _number(found: float) -> Any:
    if math.isfinite(found):
        return Decimal(repr(found))
    return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"
