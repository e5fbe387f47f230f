"""Field ids in Arrow schemas, and helpers for the parts of nested Arrow types.

The readers of all file formats produce this one form: Arrow fields whose metadata holds the Iceberg field id
under the key that pyarrow uses for Parquet.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

FIELD_ID_KEY = b"PARQUET:field_id"


def field_id_of(part: pa.Field) -> int | None:
    """The Iceberg field id of an Arrow field, or None if it has none."""
    text = (part.metadata or {}).get(FIELD_ID_KEY)
    return None if text is None or int(text) < 0 else int(text)


def with_field_id(part: pa.Field, field_id: int) -> pa.Field:
    """The field with `field_id` as its only metadata."""
    return part.with_metadata({FIELD_ID_KEY: str(field_id).encode()})


def arrow_parts(type_: pa.DataType) -> list[pa.Field]:
    """The child fields of a nested type (key and value for a map); empty for a primitive type."""
    if pa.types.is_struct(type_):
        return [type_.field(at) for at in range(type_.num_fields)]
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    return [type_.value_field] if is_list(type_) else []


def rebuilt(type_: pa.DataType, parts: Sequence[pa.Field]) -> pa.DataType:
    """A nested type of the same kind with other child fields."""
    if pa.types.is_struct(type_):
        return pa.struct(list(parts))
    if pa.types.is_map(type_):
        return pa.map_(parts[0], parts[1], keys_sorted=type_.keys_sorted)
    if pa.types.is_large_list(type_):
        return pa.large_list(parts[0])
    return pa.list_(parts[0])


def is_list(type_: pa.DataType) -> bool:
    """Whether the type is a list or a large list."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))
