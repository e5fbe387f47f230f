"""Converts types and schemas to and from the JSON of the specification (Appendix C, Schemas)."""

from __future__ import annotations

import re
from typing import Any

from streamlake.errors import DataInvalidError
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
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
    VariantType,
)
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.values import from_json_value, to_json_value

_SIMPLE: dict[str, PrimitiveType] = {
    str(type_): type_
    for type_ in (
        BooleanType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
        DateType(),
        TimeType(),
        TimestampType(),
        TimestamptzType(),
        TimestampNsType(),
        TimestamptzNsType(),
        StringType(),
        UUIDType(),
        BinaryType(),
        UnknownType(),
        VariantType(),
    )
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d+)\s*\]")
_GEOMETRY = re.compile(r"geometry(?:\(\s*([^)]*?)\s*\))?")
_GEOGRAPHY = re.compile(r"geography(?:\(\s*([^,)]*?)\s*(?:,\s*(\w+)\s*)?\))?")


def parse_primitive(text: str) -> PrimitiveType:
    """The primitive type of a specification text ("long", "decimal(9,2)"). Raises DataInvalidError."""
    folded = text.strip().lower()
    if folded in _SIMPLE:
        return _SIMPLE[folded]
    if match := _DECIMAL.fullmatch(folded):
        return DecimalType(int(match[1]), int(match[2]))
    if match := _FIXED.fullmatch(folded):
        return FixedType(int(match[1]))
    if match := _GEOMETRY.fullmatch(text.strip()):
        return GeometryType(match[1] or None)
    if match := _GEOGRAPHY.fullmatch(text.strip()):
        return GeographyType(match[1] or None, match[2])
    raise DataInvalidError(
        f"'{text}' is not a type of the Iceberg specification; is the schema damaged, or newer?"
    )


def type_from_json(obj: Any) -> IcebergType:
    """A type from its JSON form: text for a primitive, an object for struct, list and map.

    Raises DataInvalidError.
    """
    if isinstance(obj, str):
        return parse_primitive(obj)
    try:
        kind = obj["type"]
        if kind == "struct":
            return StructType(tuple(field_from_json(part) for part in obj["fields"]))
        if kind == "list":
            return ListType(obj["element-id"], type_from_json(obj["element"]), bool(obj["element-required"]))
        if kind == "map":
            return MapType(
                obj["key-id"],
                type_from_json(obj["key"]),
                obj["value-id"],
                type_from_json(obj["value"]),
                bool(obj["value-required"]),
            )
    except (KeyError, TypeError) as error:
        raise DataInvalidError(f"a schema's JSON lacks or misplaces {error}: {str(obj)[:200]}") from error
    raise DataInvalidError(f"a schema's JSON has the unknown type {kind!r}")


def field_from_json(obj: dict[str, Any]) -> NestedField:
    """A field from its JSON object, with its defaults as values of its type."""
    type_ = type_from_json(obj["type"])
    return NestedField(
        field_id=obj["id"],
        name=obj["name"],
        type=type_,
        required=bool(obj["required"]),
        doc=obj.get("doc"),
        initial_default=_default(type_, obj.get("initial-default")),
        write_default=_default(type_, obj.get("write-default")),
    )


def _default(type_: IcebergType, value: Any) -> Any:
    return None if value is None else from_json_value(type_, value)


def type_to_json(type_: IcebergType) -> Any:
    """The JSON form of a type, the inverse of `type_from_json`."""
    if isinstance(type_, StructType):
        return {"type": "struct", "fields": [field_to_json(part) for part in type_.fields]}
    if isinstance(type_, ListType):
        return {
            "type": "list",
            "element-id": type_.element_id,
            "element": type_to_json(type_.element_type),
            "element-required": type_.element_required,
        }
    if isinstance(type_, MapType):
        return {
            "type": "map",
            "key-id": type_.key_id,
            "key": type_to_json(type_.key_type),
            "value-id": type_.value_id,
            "value": type_to_json(type_.value_type),
            "value-required": type_.value_required,
        }
    return str(type_)


def field_to_json(part: NestedField) -> dict[str, Any]:
    """The JSON object of a field, the inverse of `field_from_json`."""
    obj: dict[str, Any] = {
        "id": part.field_id,
        "name": part.name,
        "required": part.required,
        "type": type_to_json(part.type),
    }
    if part.doc is not None:
        obj["doc"] = part.doc
    if part.initial_default is not None:
        obj["initial-default"] = to_json_value(part.type, part.initial_default)
    if part.write_default is not None:
        obj["write-default"] = to_json_value(part.type, part.write_default)
    return obj


_SCHEMA_KEYS = {"type", "schema-id", "identifier-field-ids", "fields"}


def schema_from_json(obj: dict[str, Any]) -> Schema:
    """A schema from its JSON object in table metadata. Unknown keys are kept in `extra`."""
    struct = type_from_json({"type": "struct", "fields": obj["fields"]})
    assert isinstance(struct, StructType)
    return Schema(
        fields=struct.fields,
        schema_id=obj.get("schema-id", 0),
        identifier_field_ids=tuple(obj.get("identifier-field-ids") or ()),
        extra={key: value for key, value in obj.items() if key not in _SCHEMA_KEYS},
    )


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """The JSON object of a schema, the inverse of `schema_from_json`."""
    obj: dict[str, Any] = {"type": "struct", "schema-id": schema.schema_id}
    if schema.identifier_field_ids:
        obj["identifier-field-ids"] = list(schema.identifier_field_ids)
    obj["fields"] = [field_to_json(part) for part in schema.fields]
    return {**obj, **schema.extra}
