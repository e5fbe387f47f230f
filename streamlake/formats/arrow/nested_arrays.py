"""Rebuilds nested Arrow arrays with converted leaves; offsets, nulls and slicing stay as they are.

Used where a file format stores leaves in another Arrow type than the table's rows have (Avro, ORC).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streamlake.spec.types.data_types import IcebergType, ListType, MapType, PrimitiveType, StructType

ConvertLeaf = Callable[[pa.Array, PrimitiveType], pa.Array]


def with_children(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """The list or map array as type `target`, with its values (the entries of a map) replaced by `values`."""
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], null_count=-1, offset=array.offset, children=[values]
    )


def converted_array(array: pa.Array, type_: IcebergType, target: pa.DataType, leaf: ConvertLeaf) -> pa.Array:
    """`array`, of the Iceberg type `type_`, as the Arrow type `target`; `leaf` converts each leaf.

    `target` is nested as `type_` is, except that a map may be a list of key-value structs on either side.
    """
    if isinstance(type_, PrimitiveType):
        return leaf(array, type_)
    if isinstance(type_, StructType):
        parts = [
            converted_array(array.field(at), part.type, target.field(at).type, leaf)
            for at, part in enumerate(type_.fields)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(
            parts, fields=[target.field(at) for at in range(target.num_fields)], mask=mask
        )
    if isinstance(type_, ListType):
        values = converted_array(array.values, type_.element_type, target.value_type, leaf)
        return with_children(array, target, values)
    if isinstance(type_, MapType):
        pair = (
            pa.struct([target.key_field, target.item_field]) if pa.types.is_map(target) else target.value_type
        )
        keys, items = (array.keys, array.items) if pa.types.is_map(array.type) else _pairs(array)
        entries = pa.StructArray.from_arrays(
            [
                converted_array(keys, type_.key_type, pair.field(0).type, leaf),
                converted_array(items, type_.value_type, pair.field(1).type, leaf),
            ],
            fields=[pair.field(0), pair.field(1)],
        )
        return with_children(array, target, entries)
    raise TypeError(f"{type_} is not an Iceberg type")


def _pairs(array: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    return array.values.field(0), array.values.field(1)
