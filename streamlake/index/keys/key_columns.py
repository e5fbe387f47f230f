"""The canonical form of one key column: words, rows of fixed width, or byte strings, with their hashes.

Used by `key_codec` and `sequence_values`. Invariant: values that count as equal have equal bytes here. So
-0.0 is 0.0, there is one NaN, and values at nulls are zero or empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.arrow_transforms import byte_strings, integers, plain_array
from streamlake.index.keys.xxh64 import hash_bytes, hash_ints, hash_longs
from streamlake.spec.types.data_types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    StringType,
    UUIDType,
)

Array = np.ndarray[Any, Any]

LONG_DIGITS = 18
"""Decimals with at most this many digits are kept as 64-bit integers."""


@dataclass(frozen=True, eq=False)
class Words:
    """A column of numbers of at most 64 bits: `values` is (n,) int32 or int64; `nulls` (n,) bool or None."""

    values: Array
    nulls: Array | None

    def __len__(self) -> int:
        return len(self.values)

    def hashes(self, seeds: Array) -> Array:
        """The hash of each value, chained to `seeds` (n,) uint64."""
        chained: Array = (
            hash_ints(self.values, seeds) if self.values.itemsize == 4 else hash_longs(self.values, seeds)
        )
        return chained

    def bytes(self) -> Array:
        """The bytes of the values, (n, width) uint8."""
        return self.values.view(np.uint8).reshape(len(self.values), self.values.itemsize)


@dataclass(frozen=True, eq=False)
class Rows:
    """A column of fixed width: `values` is (n, width) uint8.

    `decimals` says that the values are 128-bit little-endian integers.
    """

    values: Array
    nulls: Array | None
    decimals: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def hashes(self, seeds: Array) -> Array:
        """The hash of each value (of a decimal's shortest bytes), chained to `seeds` (n,) uint64."""
        rows, width = self.values.shape
        starts = np.arange(rows, dtype=np.int64) * width
        if not self.decimals:
            return hash_bytes(self.values.reshape(-1), starts, np.full(rows, width), seeds)
        big_endian = np.ascontiguousarray(self.values[:, ::-1])
        sign = (big_endian[:, :1] >> 7) * np.uint8(0xFF)
        # A leading byte is redundant when it and the next byte's top bit only repeat the sign.
        idle = (big_endian[:, :-1] == sign) & ((big_endian[:, 1:] ^ sign) < 0x80)
        skip = np.where(idle.all(axis=1), width - 1, np.argmin(idle, axis=1))
        return hash_bytes(big_endian.reshape(-1), starts + skip, width - skip, seeds)

    def bytes(self) -> Array:
        """The bytes of the values, (n, width) uint8."""
        return self.values


@dataclass(frozen=True, eq=False)
class Strings:
    """A column of byte strings: `values` is a large_binary array without nulls.

    `marked` says that any bytes can be a value.
    """

    values: pa.LargeBinaryArray
    nulls: Array | None
    marked: bool

    def __len__(self) -> int:
        return len(self.values)

    def hashes(self, seeds: Array) -> Array:
        """The hash of each value, chained to `seeds` (n,) uint64."""
        return hash_bytes(*byte_strings(self.values), seeds)

    def lengths(self) -> Array:
        """The number of bytes of each value, (n,) int64."""
        return byte_strings(self.values)[2]


_EMPTY = pa.scalar(b"", pa.large_binary())

KeyColumn = Words | Rows | Strings


def is_word(type_: IcebergType) -> bool:
    """Whether a value has at most 64 bits, so that its canonical form is `Words`."""
    if isinstance(type_, DecimalType):
        return type_.precision <= LONG_DIGITS
    return not isinstance(type_, (StringType, BinaryType, UUIDType, FixedType))


def key_column(type_: IcebergType, column: pa.Array | pa.ChunkedArray) -> KeyColumn:
    """The canonical form of a column in the Arrow type of `type_`."""
    if isinstance(type_, (StringType, BinaryType)):
        return _strings(column, isinstance(type_, BinaryType))
    array = plain_array(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if isinstance(type_, (UUIDType, FixedType)):
        return Rows(_zeroed(_fixed_rows(array), nulls), nulls)
    if isinstance(type_, DecimalType):
        rows = _zeroed(_fixed_rows(array), nulls)
        if type_.precision > LONG_DIGITS:
            return Rows(rows, nulls, decimals=True)
        return Words(np.ascontiguousarray(rows.view(np.int64)[:, 0]), nulls)
    if pa.types.is_boolean(array.type):
        return Words(pc.fill_null(array, False).cast(pa.int32()).to_numpy(), nulls)
    if pa.types.is_floating(array.type):
        return Words(_float_bits(array), nulls)
    return Words(integers(array), nulls)


def _strings(column: pa.Array | pa.ChunkedArray, marked: bool) -> Strings:
    column = column.cast(pa.large_binary()) if not pa.types.is_dictionary(column.type) else column
    array = plain_array(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    array = array.cast(pa.large_binary())
    if not array.null_count:
        return Strings(array, None, marked)
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    return Strings(pc.fill_null(array, b""), nulls, marked)


def _fixed_rows(array: pa.Array) -> Array:
    width = array.type.byte_width
    if not len(array):
        return np.zeros((0, width), dtype=np.uint8)
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _zeroed(rows: Array, nulls: Array | None) -> Array:
    if nulls is None:
        return rows
    rows = rows.copy()
    rows[nulls] = 0
    return rows


def _float_bits(array: pa.Array) -> Array:
    """The bits as signed integers of the same width; -0.0 becomes 0.0 and every NaN the quiet one."""
    values = (pc.fill_null(array, 0.0) if array.null_count else array).to_numpy(zero_copy_only=False)
    integer, nan = (np.int32, 0x7FC00000) if values.dtype == np.float32 else (np.int64, 0x7FF8000000000000)
    values = values + values.dtype.type(0)
    bits: Array = values.view(integer)
    bits[np.isnan(values)] = nan
    return bits


def binaries(rows: Array, nulls: Array | None = None) -> pa.LargeBinaryArray:
    """Rows of bytes as binary values; null rows become empty ones."""
    count, width = rows.shape
    if nulls is None:
        offsets = np.arange(count + 1, dtype=np.int64) * width
    else:
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(~nulls) * width])
        rows = rows[~nulls]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)


def joined(*parts: pa.LargeBinaryArray | pa.LargeBinaryScalar) -> pa.LargeBinaryArray:
    """Binary values concatenated row by row."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _EMPTY)
