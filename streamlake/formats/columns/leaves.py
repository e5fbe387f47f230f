"""The leaf columns of a schema, in the order of a Parquet file's column chunks, and their Arrow values.

Shared by the writers, which collect metrics per leaf, and by the choice of encodings. Invariant: `index` is
the position of the leaf among all leaves, depth first, which is also the column index in a Parquet row group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamlake.spec.types.data_types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)
from streamlake.spec.types.schema import Schema


@dataclass(frozen=True)
class Leaf:
    """A primitive field and where its values are.

    `positions` is the path to it from the table: column index, then child index per nesting level. `repeated`
    says that a list or a map is on the path, so that there is not one value per row. `parquet_path` is the
    dotted column path.
    """

    index: int
    field_id: int
    type: PrimitiveType
    positions: tuple[int, ...]
    parquet_path: str
    repeated: bool


def schema_leaves(schema: Schema) -> tuple[Leaf, ...]:
    """Every primitive field of the schema as a leaf."""
    found = _walk(schema.fields, (), "", False)
    return tuple(
        Leaf(index, part.field_id, type_, positions, path, repeated)
        for index, (part, type_, positions, path, repeated) in enumerate(found)
    )


_Found = tuple[NestedField, PrimitiveType, tuple[int, ...], str, bool]


def _walk(
    fields: tuple[NestedField, ...], above: tuple[int, ...], prefix: str, repeated: bool
) -> Iterator[_Found]:
    for position, part in enumerate(fields):
        yield from _field(part, part.type, (*above, position), f"{prefix}{part.name}", repeated)


def _field(
    part: NestedField, type_: IcebergType, positions: tuple[int, ...], path: str, repeated: bool
) -> Iterator[_Found]:
    if isinstance(type_, PrimitiveType):
        yield part, type_, positions, path, repeated
    elif isinstance(type_, StructType):
        yield from _walk(type_.fields, positions, f"{path}.", repeated)
    elif isinstance(type_, ListType):
        yield from _field(type_.element, type_.element_type, (*positions, 0), f"{path}.list.element", True)
    elif isinstance(type_, MapType):
        yield from _field(type_.key, type_.key_type, (*positions, 0), f"{path}.key_value.key", True)
        yield from _field(type_.value, type_.value_type, (*positions, 1), f"{path}.key_value.value", True)


def leaf_values(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """The leaf's values: one per row (null where a parent is null); inside lists and maps, the elements."""
    column = table.column(leaf.positions[0])
    for position in leaf.positions[1:]:
        column = pa.chunked_array(
            [_child(chunk, position) for chunk in column.chunks], type=_child_type(column.type, position)
        )
    return column


def _child(array: pa.Array, position: int) -> pa.Array:
    if pa.types.is_struct(array.type):
        return array.flatten()[position] if array.null_count else array.field(position)
    if pa.types.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return (array.keys if position == 0 else array.items).slice(first, last - first)
    return array.flatten()


def _child_type(type_: pa.DataType, position: int) -> pa.DataType:
    if pa.types.is_struct(type_):
        return type_.field(position).type
    if pa.types.is_map(type_):
        return type_.key_type if position == 0 else type_.item_type
    return type_.value_type
