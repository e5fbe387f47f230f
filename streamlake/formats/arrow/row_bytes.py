"""Encodes rows as bytes that are equal exactly when the rows are, to compare tables of any column types.

A value is a byte that distinguishes null (0) from a value (1), followed by the value. Fixed-width types take
their width, texts and lists follow their length, structs are their fields, and maps are their entries in the
order of their bytes. NaN equals NaN, and in a key -0.0 equals 0.0; otherwise values are compared bit by bit.
Invariant: no value is a prefix of another value's bytes, so columns follow each other without separators. All
work is done in bulk.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import FeatureUnsupportedError
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.values import scaled

Array = np.ndarray[Any, Any]

_INT64 = (LongType, TimeType, TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_INT32 = (IntegerType, DateType)
_EMPTY = pa.scalar(b"", pa.binary())
_NULL = pa.scalar(b"\x00", pa.binary())


def encode_rows(
    columns: Sequence[pa.Array], types: Sequence[IcebergType], *, as_key: bool = False
) -> pa.BinaryArray:
    """The bytes of n rows, from one array of n values per column in the Arrow type of its Iceberg type.

    Raises FeatureUnsupportedError for a type that cannot be compared.
    """
    encoded = [_encoded(array, type_, as_key) for array, type_ in zip(columns, types, strict=True)]
    return encoded[0] if len(encoded) == 1 else pc.binary_join_element_wise(*encoded, _EMPTY)


def decode_row(data: bytes, types: Sequence[IcebergType]) -> list[tuple[Any, bytes]]:
    """Each column's value, in the domain of `spec.types.values`, and its bytes."""
    columns = []
    at = 0
    for type_ in types:
        value, end = _decoded(data, at, type_)
        columns.append((value, data[at:end]))
        at = end
    return columns


def _encoded(array: pa.Array, type_: IcebergType, as_key: bool) -> pa.BinaryArray:
    if isinstance(type_, StructType):
        parts = [_encoded(array.field(at), part.type, as_key) for at, part in enumerate(type_.fields)]
        joined = pc.binary_join_element_wise(pa.repeat(pa.scalar(b"\x01"), len(array)), *parts, _EMPTY)
        return pc.if_else(array.is_valid(), joined, _NULL) if array.null_count else joined
    if isinstance(type_, ListType):
        return _lists(array, _encoded(array.flatten(), type_.element_type, as_key))
    if isinstance(type_, MapType):
        return _maps(array, type_, as_key)
    if isinstance(type_, (StringType, BinaryType)):
        return _texts(array)
    return _fixed(_values(array, type_, as_key), array)


def _fixed(values: Array, array: pa.Array) -> pa.BinaryArray:
    """`values` is (n, width) bytes."""
    rows: Array = np.zeros((len(array), values.shape[1] + 1), dtype=np.uint8)
    rows[:, 0] = 1
    rows[:, 1:] = values
    if array.null_count:
        rows[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return _binaries(rows)


def _values(array: pa.Array, type_: IcebergType, as_key: bool) -> Array:
    if isinstance(type_, (DecimalType, FixedType, UUIDType)):
        width = 16 if not isinstance(type_, FixedType) else type_.length
        data = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint8)
        return data[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)
    if isinstance(type_, BooleanType):
        values = array.fill_null(False).cast(pa.uint8()).to_numpy(zero_copy_only=False)
    elif isinstance(type_, (FloatType, DoubleType)):
        values = array.fill_null(0.0).to_numpy(zero_copy_only=False)
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
        values = values + np.array(0.0, values.dtype) if as_key else values
    elif isinstance(type_, _INT64):
        values = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    elif isinstance(type_, _INT32):
        values = array.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    else:
        raise FeatureUnsupportedError(f"values of the type {type_} cannot be compared; leave the column out")
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(array), values.itemsize)


def _texts(array: pa.Array) -> pa.BinaryArray:
    data = array.cast(pa.binary())
    lengths = pc.binary_length(data).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32)
    filled = data.fill_null(b"") if data.null_count else data
    return pc.if_else(data.is_valid(), pc.binary_join_element_wise(_counted(lengths), filled, _EMPTY), _NULL)


def _lists(array: pa.Array, items: pa.BinaryArray) -> pa.BinaryArray:
    """Lists with the given `items`; the items of null lists are left out of them."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32)
    offsets: Array = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), _EMPTY)
    encoded = pc.binary_join_element_wise(_counted(lengths), joined, _EMPTY)
    return pc.if_else(array.is_valid(), encoded, _NULL) if array.null_count else encoded


def _maps(array: pa.Array, type_: MapType, as_key: bool) -> pa.BinaryArray:
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    lists = pa.Array.from_buffers(
        pa.list_(entries.type),
        len(array),
        array.buffers()[:2],
        array.null_count,
        array.offset,
        children=[entries],
    )
    flat = lists.flatten()
    encoded = pc.binary_join_element_wise(
        _encoded(flat.field(0), type_.key_type, as_key),
        _encoded(flat.field(1), type_.value_type, as_key),
        _EMPTY,
    )
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    owner = pa.array(np.repeat(np.arange(len(array)), lengths))
    order = pc.sort_indices(
        pa.table({"map": owner, "entry": encoded}), sort_keys=[("map", "ascending"), ("entry", "ascending")]
    )
    return _lists(lists, encoded.take(order))


def _counted(lengths: Array) -> pa.BinaryArray:
    """A byte that marks a value as present, followed by a count of four bytes."""
    rows: Array = np.ones((len(lengths), 5), dtype=np.uint8)
    rows[:, 1:] = lengths.astype("<i4").view(np.uint8).reshape(len(lengths), 4)
    return _binaries(rows)


def _binaries(rows: Array) -> pa.BinaryArray:
    """(n, width) bytes as n values."""
    count, width = rows.shape
    offsets: Array = (np.arange(count + 1, dtype=np.int64) * width).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _decoded(data: bytes, at: int, type_: IcebergType) -> tuple[Any, int]:
    """The value at an offset, and the offset after it."""
    width = _width(type_)
    if not data[at]:
        nested = isinstance(type_, (StructType, ListType, MapType, StringType, BinaryType))
        return None, at + (1 if nested else 1 + width)
    at += 1
    if isinstance(type_, StructType):
        fields = {}
        for part in type_.fields:
            fields[part.name], at = _decoded(data, at, part.type)
        return fields, at
    if isinstance(type_, (ListType, MapType, StringType, BinaryType)):
        count = int.from_bytes(data[at : at + 4], "little")
        return _counted_value(data, at + 4, count, type_)
    return _fixed_value(data[at : at + width], type_), at + width


def _counted_value(data: bytes, at: int, count: int, type_: IcebergType) -> tuple[Any, int]:
    if isinstance(type_, StringType):
        return data[at : at + count].decode("utf-8", "replace"), at + count
    if isinstance(type_, BinaryType):
        return data[at : at + count], at + count
    items: list[Any] = []
    for _ in range(count):
        if isinstance(type_, MapType):
            key, at = _decoded(data, at, type_.key_type)
            value, at = _decoded(data, at, type_.value_type)
            items.append((key, value))
        else:
            assert isinstance(type_, ListType)
            item, at = _decoded(data, at, type_.element_type)
            items.append(item)
    return items, at


def _fixed_value(data: bytes, type_: IcebergType) -> Any:
    if isinstance(type_, DecimalType):
        return scaled(int.from_bytes(data, "little", signed=True), type_.scale)
    if isinstance(type_, UUIDType):
        return UUID(bytes=data)
    if isinstance(type_, BooleanType):
        return data != b"\x00"
    if isinstance(type_, FloatType):
        return struct.unpack("<f", data)[0]
    if isinstance(type_, DoubleType):
        return struct.unpack("<d", data)[0]
    return data if isinstance(type_, FixedType) else int.from_bytes(data, "little", signed=True)


def _width(type_: IcebergType) -> int:
    if isinstance(type_, FixedType):
        return type_.length
    if isinstance(type_, BooleanType):
        return 1
    if isinstance(type_, (*_INT32, FloatType)):
        return 4
    return 16 if isinstance(type_, (DecimalType, UUIDType)) else 8
