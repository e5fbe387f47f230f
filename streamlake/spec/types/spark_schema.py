"""Converts Spark's schema JSON (`StructType.json()`) to a Schema, without Spark.

Invariant: a Spark type becomes the same Iceberg type as in Iceberg's own Spark integration: `timestamp` has a
time zone, `timestamp_ntz` has none, byte and short become int.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.types.data_types import IcebergType, ListType, MapType, NestedField, StructType
from streamlake.spec.types.schema import Schema, fresh_schema
from streamlake.spec.types.type_json import parse_primitive

_NAMES = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "timestamp": "timestamptz",
    "timestamp_ltz": "timestamptz",
    "timestamp_ntz": "timestamp",
}


def schema_from_spark_json(text: str) -> Schema:
    """The schema with fresh ids.

    Raises InvalidOptionError, or FeatureUnsupportedError for a type that Iceberg does not have.
    """
    try:
        obj = json.loads(text)
        if obj.get("type") != "struct":
            raise ValueError("its outermost type is no struct")
        return fresh_schema(Schema(_fields(obj, "", count(1))))
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise InvalidOptionError(f"schema: this is not the JSON of a Spark schema ({cause})") from cause


def _fields(struct: dict[str, Any], prefix: str, ids: Iterator[int]) -> tuple[NestedField, ...]:
    fields = []
    for part in struct["fields"]:
        name = part["name"]
        doc = (part.get("metadata") or {}).get("comment")
        type_ = _type(part["type"], f"{prefix}{name}", ids)
        fields.append(NestedField(next(ids), name, type_, not part.get("nullable", True), doc))
    return tuple(fields)


def _type(obj: Any, column: str, ids: Iterator[int]) -> IcebergType:
    if isinstance(obj, str):
        return _primitive(obj, column)
    kind = obj["type"]
    if kind == "struct":
        return StructType(_fields(obj, f"{column}.", ids))
    if kind == "array":
        element = _type(obj["elementType"], f"{column}.element", ids)
        return ListType(next(ids), element, not obj.get("containsNull", True))
    if kind == "map":
        key = _type(obj["keyType"], f"{column}.key", ids)
        value = _type(obj["valueType"], f"{column}.value", ids)
        return MapType(next(ids), key, next(ids), value, not obj.get("valueContainsNull", True))
    if kind == "udt":
        return _type(obj["sqlType"], column, ids)
    raise ValueError(f"column {column} has the type {kind!r}")


def _primitive(text: str, column: str) -> IcebergType:
    base = text.partition("(")[0].partition(" ")[0].lower()
    if base in ("string", "varchar", "char"):
        return parse_primitive("string")
    try:
        return parse_primitive(_NAMES.get(base, text))
    except (DataInvalidError, FeatureUnsupportedError, InvalidOptionError, ValueError) as cause:
        raise FeatureUnsupportedError(
            f"column '{column}' has the Spark type {text}, which no Iceberg type holds: cast it to another "
            "type"
        ) from cause
