"""Arrow arrays with uuids as text, wherever in a column they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.spec.types.data_types import IcebergType, ListType, MapType, StructType, UUIDType

_WIDTH = 36
_DASHES = (8, 13, 18, 23)
_DIGITS = tuple(at for at in range(_WIDTH) if at not in _DASHES)
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)


def holds_uuid(type_: IcebergType) -> bool:
    """Whether a type is a uuid, or has one in it."""
    if isinstance(type_, StructType):
        return any(holds_uuid(part.type) for part in type_.fields)
    if isinstance(type_, ListType):
        return holds_uuid(type_.element_type)
    if isinstance(type_, MapType):
        return holds_uuid(type_.key_type) or holds_uuid(type_.value_type)
    return isinstance(type_, UUIDType)


def with_uuid_text(array: pa.Array, type_: IcebergType) -> pa.Array:
    """The array of an Iceberg type with every uuid (16 bytes) as text of 36 characters in lower case."""
    if not holds_uuid(type_):
        return array
    if isinstance(type_, StructType):
        parts = [with_uuid_text(array.field(at), part.type) for at, part in enumerate(type_.fields)]
        names = [part.name for part in type_.fields]
        return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
    if isinstance(type_, ListType):
        values = with_uuid_text(array.values, type_.element_type)
        return _around(array, pa.list_(values.type), values)
    if isinstance(type_, MapType):
        keys = with_uuid_text(array.keys, type_.key_type)
        items = with_uuid_text(array.items, type_.value_type)
        map_type = pa.map_(keys.type, items.type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[map_type.key_field, map_type.item_field])
        return _around(array, map_type, entries)
    return _text(array)


def _around(array: pa.Array, type_: pa.DataType, values: pa.Array) -> pa.Array:
    """Lists or maps like `array`, of other values."""
    return pa.Array.from_buffers(
        type_, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
    )


def _text(array: pa.Array) -> pa.Array:
    rows = len(array)
    if array.null_count == rows:
        return pa.nulls(rows, pa.string())
    data = np.frombuffer(array.buffers()[1], np.uint8)
    data = data[16 * array.offset : 16 * (array.offset + rows)].reshape(rows, 16)
    text = np.full((rows, _WIDTH), ord("-"), np.uint8)
    text[:, _DIGITS] = _HEX[data].reshape(rows, 32)
    offsets = np.arange(0, _WIDTH * (rows + 1), _WIDTH, dtype=np.int32)
    found = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
    return pc.if_else(array.is_valid(), found, None) if array.null_count else found
