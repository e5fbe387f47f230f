"""Types and schemas as one line of text for messages, without ids, which do not help readers of messages."""

from __future__ import annotations

from streamlake.spec.types.data_types import IcebergType, ListType, MapType, NestedField, StructType
from streamlake.spec.types.schema import Schema


def type_text(type_: IcebergType) -> str:
    """A type without ids, for messages: "struct<a: int, b: list<string> not null>"."""
    if isinstance(type_, StructType):
        return f"struct<{', '.join(f'{part.name}: {_field_text(part)}' for part in type_.fields)}>"
    if isinstance(type_, ListType):
        return f"list<{_field_text(type_.element)}>"
    if isinstance(type_, MapType):
        return f"map<{type_text(type_.key_type)}, {_field_text(type_.value)}>"
    return str(type_)


def columns_text(schema: Schema) -> str:
    """A schema in one line, for messages."""
    return ", ".join(f"{part.name} {_field_text(part)}" for part in schema.fields)


def _field_text(part: NestedField) -> str:
    return f"{type_text(part.type)}{' not null' if part.required else ''}"
