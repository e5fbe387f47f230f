"""Table schemas from JSON Schema (drafts 4 to 2020-12, as registries hold them).

integer becomes long, number double. string becomes string, or date, time, timestamptz and uuid by its
`format`. An object becomes a struct, or a map of text keys when it has no properties of its own. An array
becomes a list. Of Kafka Connect's additions, narrower numbers, bytes and decimals are honoured. A field is
required when the object requires it and it cannot be null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
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
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema, assign_fresh_ids

Json = Any

_FORMATS: dict[str, IcebergType] = {
    "date": DateType(),
    "date-time": TimestamptzType(),
    "time": TimeType(),
    "uuid": UUIDType(),
}
_CONNECT: dict[tuple[str, str], IcebergType] = {
    ("integer", "int8"): IntegerType(),
    ("integer", "int16"): IntegerType(),
    ("integer", "int32"): IntegerType(),
    ("number", "float32"): FloatType(),
    ("string", "bytes"): BinaryType(),
}
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MAX_PRECISION = 38
_PLAIN: dict[str, IcebergType] = {
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}


def schema_from_json_schema(text: str, where: str, references: Mapping[str, str] | None = None) -> Schema:
    """An Iceberg schema with ids from 1. `references` are other documents by the name that `$ref` uses.

    Raises InvalidOptionError for text that is not a JSON schema, and FeatureUnsupportedError for what no
    column can hold; both name `where` and the field.
    """
    converter = _Converter(where, text, references or {})
    type_, _ = converter.type(converter.root, "", converter.root, ())
    if not isinstance(type_, StructType):
        raise FeatureUnsupportedError(
            f"{where}: the schema is {type_}, not an object; only objects have columns"
        )
    ids = count(1)
    return Schema(assign_fresh_ids(type_.fields, lambda: next(ids)))


class _Converter:
    def __init__(self, where: str, text: str, references: Mapping[str, str]) -> None:
        self._where = where
        self.root = self._loaded(text)
        self._others = {name: self._loaded(other) for name, other in references.items()}

    def type(
        self, schema: Json, path: str, document: Json, open_: tuple[str, ...]
    ) -> tuple[IcebergType, bool]:
        """The column type, and whether it can be null. `open_` are the references being resolved."""
        if not isinstance(schema, dict):
            raise self._unsupported(path, "has no type of its own")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name, _, pointer = reference.partition("#")
            if reference in open_:
                raise self._unsupported(path, f"holds itself ({reference})")
            document = self._others.get(name, document) if name else document
            return self.type(self._pointed(document, pointer, reference), path, document, (*open_, reference))
        for key in ("oneOf", "anyOf", "allOf"):
            if key in schema:
                return self._choice(schema[key], path, document, open_)
        kinds = schema.get("type")
        if kinds is None:
            kinds = "object" if "properties" in schema else _kind_of_values(schema)
        names = [kinds] if isinstance(kinds, str) else list(kinds or ())
        others = [name for name in names if name != "null"]
        if len(others) != 1:
            problem = f"is {' or '.join(others)}" if others else "has no type of its own"
            raise self._unsupported(path, problem)
        return self._single(others[0], schema, path, document, open_), len(others) < len(names)

    def _choice(
        self, choices: Json, path: str, document: Json, open_: tuple[str, ...]
    ) -> tuple[IcebergType, bool]:
        others = [each for each in choices if not (isinstance(each, dict) and each.get("type") == "null")]
        if len(others) != 1:
            raise self._unsupported(path, "can be one of several things")
        type_, nullable = self.type(others[0], path, document, open_)
        return type_, nullable or len(others) < len(choices)

    def _single(
        self, kind: str, schema: Json, path: str, document: Json, open_: tuple[str, ...]
    ) -> IcebergType:
        if kind == "object":
            return self._object(schema, path, document, open_)
        if kind == "array":
            items = schema.get("items")
            type_, nullable = self.type(items, f"{path}.element".lstrip("."), document, open_)
            return ListType(0, type_, not nullable)
        if kind == "number" and schema.get("title") == _CONNECT_DECIMAL:
            return _decimal(schema.get("connect.parameters") or {})
        known = _CONNECT.get((kind, str(schema.get("connect.type"))))
        if known is not None:
            return known
        if kind == "string":
            return _FORMATS.get(str(schema.get("format")), StringType())
        if kind not in _PLAIN:
            raise self._unsupported(path, f"is '{kind}'")
        return _PLAIN[kind]

    def _object(self, schema: Json, path: str, document: Json, open_: tuple[str, ...]) -> IcebergType:
        properties = schema.get("properties")
        if not properties:
            values = schema.get("additionalProperties")
            if not isinstance(values, dict):
                raise self._unsupported(path, "is an object of which nothing is known")
            type_, nullable = self.type(values, f"{path}.value".lstrip("."), document, open_)
            return MapType(0, StringType(), 0, type_, not nullable)
        required = set(schema.get("required") or ())
        ordered = sorted(properties.items(), key=lambda item: _place(item[1]))
        fields = []
        for name, part in ordered:
            type_, nullable = self.type(part, f"{path}.{name}".lstrip("."), document, open_)
            doc = part.get("description") if isinstance(part, dict) else None
            fields.append(
                NestedField(
                    0, name, type_, name in required and not nullable, doc if isinstance(doc, str) else None
                )
            )
        return StructType(tuple(fields))

    def _pointed(self, document: Json, pointer: str, reference: str) -> Json:
        found = document
        for part in filter(None, pointer.split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise InvalidOptionError(f"{self._where}: '{reference}' leads to nothing")
            found = found[key]
        return found

    def _loaded(self, text: str) -> Json:
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidOptionError(f"{self._where} is not a JSON schema: {error}") from error

    def _unsupported(self, path: str, problem: str) -> FeatureUnsupportedError:
        return FeatureUnsupportedError(
            f"{self._where}: '{path}' {problem}, which is not a column type; give the pipeline a schema"
        )


def _kind_of_values(schema: Json) -> str | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return "string" if values and all(isinstance(value, str) for value in values) else None


def _decimal(parameters: Json) -> DecimalType:
    scale = max(0, int(parameters.get("scale", 0)))
    precision = int(parameters.get("connect.decimal.precision", _MAX_PRECISION))
    return DecimalType(min(max(precision, scale, 1), _MAX_PRECISION), min(scale, _MAX_PRECISION))


def _place(part: Json) -> int:
    """The property's position as Connect numbers it, because JSON objects have no order."""
    place = part.get("connect.index") if isinstance(part, dict) else None
    return place if isinstance(place, int) else 0
