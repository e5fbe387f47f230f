"""Name mapping: field ids for files that carry none.

The table property `schema.name-mapping.default` holds the mapping as JSON (spec: Column Projection; Appendix
C, Name Mapping Serialization). Readers apply it to a file's Arrow schema when none of its columns has a field
id; after that such a file is read like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamlake.errors import DataInvalidError
from streamlake.formats.arrow.arrow_ids import arrow_parts, field_id_of, rebuilt, with_field_id
from streamlake.options import Property
from streamlake.spec.types.data_types import NestedField, children
from streamlake.spec.types.schema import Schema

NAME_MAPPING_PROPERTY = "schema.name-mapping.default"
PROPERTIES = (
    Property(
        NAME_MAPPING_PROPERTY,
        "",
        "Iceberg's name mapping as JSON: the ids of columns in files that have no field ids.",
    ),
)


@dataclass(frozen=True)
class MappedField:
    """The names under which a field occurs in files, its id, and the mapping of its child fields.

    An id of None means that the field is not in the table.
    """

    names: tuple[str, ...]
    field_id: int | None = None
    fields: tuple[MappedField, ...] = ()


@dataclass(frozen=True)
class NameMapping:
    """A parsed name mapping."""

    fields: tuple[MappedField, ...]

    @staticmethod
    def of_schema(schema: Schema) -> NameMapping:
        """The mapping of the current names of a schema."""
        return NameMapping(tuple(_mapped(part) for part in schema.fields))

    @staticmethod
    def from_json(text: str) -> NameMapping:
        """Parse the property's value. Raises DataInvalidError when it is not a name mapping."""
        try:
            return NameMapping(_fields_from_json(json.loads(text)))
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise DataInvalidError(
                f"table property {NAME_MAPPING_PROPERTY} is not a name mapping ({cause}); "
                'write a list of {"field-id", "names", "fields"} objects there, or unset it'
            ) from cause

    def to_json(self) -> str:
        """The value of the table property: compact JSON."""
        return json.dumps(_fields_to_json(self.fields), ensure_ascii=False, separators=(",", ":"))

    def updated(self, schema: Schema) -> NameMapping:
        """The mapping after a schema change: old names stay, new names and fields are added."""
        return NameMapping(_updated(self.fields, schema.fields))

    def find(self, *path: str) -> MappedField | None:
        """The mapping at a path of names ("location", "latitude"; "tags", "element")."""
        fields, found = self.fields, None
        for name in path:
            found = _find(fields, name)
            if found is None:
                return None
            fields = found.fields
        return found

    def assign_ids(self, schema: pa.Schema) -> pa.Schema:
        """`schema` with the field ids that its names map to; a field without a mapping stays without id."""
        return pa.schema([_assigned(part, _find(self.fields, part.name)) for part in schema])


def has_field_ids(schema: pa.Schema) -> bool:
    """Whether any field of a file, at any depth, carries a field id."""
    return any(_has_id(part) for part in schema)


def with_field_ids(schema: pa.Schema, mapping: NameMapping | None, path: str) -> pa.Schema:
    """A file's schema with field ids: its own, or those of the mapping.

    Raises DataInvalidError when the file has no ids and there is no mapping.
    """
    if has_field_ids(schema) or not len(schema):
        return schema
    if mapping is None:
        raise DataInvalidError(
            f"{path}: the file has no field ids and the table no name mapping; set the table property "
            f"{NAME_MAPPING_PROPERTY}"
        )
    return mapping.assign_ids(schema)


def _has_id(part: pa.Field) -> bool:
    return field_id_of(part) is not None or any(_has_id(inner) for inner in arrow_parts(part.type))


def _mapped(part: NestedField) -> MappedField:
    return MappedField((part.name,), part.field_id, tuple(_mapped(inner) for inner in children(part.type)))


def _find(fields: Iterable[MappedField], name: str) -> MappedField | None:
    return next((field for field in fields if name in field.names), None)


def _assigned(part: pa.Field, mapped: MappedField | None) -> pa.Field:
    if mapped is None:
        return part
    names = _part_names(part.type)
    inner = [
        _assigned(child, _find(mapped.fields, name))
        for child, name in zip(arrow_parts(part.type), names, strict=True)
    ]
    typed = part.with_type(rebuilt(part.type, inner)) if inner else part
    return typed if mapped.field_id is None else with_field_id(typed, mapped.field_id)


def _part_names(type_: pa.DataType) -> list[str]:
    """The names that a mapping uses for child fields.

    These are the spec's names, whatever the file calls elements, keys and values.
    """
    parts = arrow_parts(type_)
    if pa.types.is_struct(type_):
        return [part.name for part in parts]
    return ["key", "value"] if pa.types.is_map(type_) else ["element"] * len(parts)


def _updated(old: tuple[MappedField, ...], parts: Iterable[NestedField]) -> tuple[MappedField, ...]:
    present = {part.field_id: part for part in parts}
    taken = {part.name for part in present.values()}
    kept = []
    for field in old:
        part = present.pop(field.field_id, None) if field.field_id is not None else None
        if part is None:
            names = tuple(name for name in field.names if name not in taken)
            kept.append(replace(field, names=names))
        else:
            names = tuple(name for name in field.names if name == part.name or name not in taken)
            names = names if part.name in names else (*names, part.name)
            kept.append(MappedField(names, field.field_id, _updated(field.fields, children(part.type))))
    return (*kept, *(_mapped(part) for part in present.values()))


def _fields_from_json(value: Any) -> tuple[MappedField, ...]:
    if not isinstance(value, list):
        raise ValueError("a list of mappings is expected")
    fields = []
    for item in value:
        names, field_id = item.get("names", []), item.get("field-id")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"names of field {field_id} are not a list of texts")
        if field_id is not None and type(field_id) is not int:
            raise ValueError(f"field-id {field_id!r} is not an integer")
        fields.append(MappedField(tuple(names), field_id, _fields_from_json(item.get("fields", []))))
    return tuple(fields)


def _fields_to_json(fields: Iterable[MappedField]) -> list[dict[str, Any]]:
    return [
        {
            **({} if field.field_id is None else {"field-id": field.field_id}),
            "names": list(field.names),
            **({"fields": _fields_to_json(field.fields)} if field.fields else {}),
        }
        for field in fields
    ]
