"""Decodes encoded keys into the values they were made of, the inverse of `key_codec`.

Used where entries of an index are moved to other buckets, because no table column is at hand there.
Invariant: encoding the result gives the same keys. Only for columns of at most 64 bits, texts and uuids; the
types that a message key can be made of are in VALUE_TYPES.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.index.keys.key_columns import KeyColumn, Rows, Strings, Words
from streamlake.index.keys.keys import Keys
from streamlake.index.keys.xxh64 import int_of_hash, long_of_hash
from streamlake.spec.types.data_types import (
    BooleanType,
    DateType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

Array = np.ndarray[Any, Any]

VALUE_TYPES = (IntegerType, LongType, StringType, UUIDType)
_NARROW = (BooleanType, IntegerType, FloatType, DateType)
_UUID_BYTES = 16


def key_values(fields: Sequence[NestedField], keys: Keys, seed: int) -> list[KeyColumn]:
    """The columns of n keys that a codec of these fields encoded; `seed` is that of its first hash."""
    if keys.data is None:
        return [_word(fields[0], keys, seed)]
    data, starts, lengths = byte_strings(keys.data)
    starts = starts.astype(np.int64)
    if len(fields) == 1:
        return [_single(fields[0], keys.data, data, starts, lengths)]
    strings = [part for part in fields if isinstance(part.type, StringType)]
    widths = [_width(part) for part in fields]
    nulls = [_bytes_at(data, starts + at, 1)[:, 0].astype(bool) for at in range(len(fields))]
    at = starts + len(fields)
    found: dict[int, KeyColumn] = {}
    for number, width in enumerate(widths):
        if width:
            rows = _bytes_at(data, at, width)
            found[number] = (
                Rows(rows, nulls[number])
                if isinstance(fields[number].type, UUIDType)
                else Words(rows.view(np.int32 if width == 4 else np.int64)[:, 0], nulls[number])
            )
            at = at + width
    sizes = []
    for _ in strings[:-1]:
        sizes.append(_bytes_at(data, at, 4).view("<u4")[:, 0].astype(np.int64))
        at = at + 4
    if strings:
        sizes.append(starts + lengths - at - sum(sizes))
    for number, width in enumerate(widths):
        if not width:
            size = sizes.pop(0)
            found[number] = Strings(_strings(data, at, size), nulls[number], marked=False)
            at = at + size
    return [found[number] for number in range(len(fields))]


def _word(part: NestedField, keys: Keys, seed: int) -> Words:
    undo = int_of_hash if isinstance(part.type, _NARROW) else long_of_hash
    values = undo(keys.hashes, seed)
    return Words(
        values if keys.nulls is None else np.where(keys.nulls, values.dtype.type(0), values), keys.nulls
    )


def _single(
    part: NestedField, values: pa.LargeBinaryArray, data: Array, starts: Array, lengths: Array
) -> KeyColumn:
    if isinstance(part.type, UUIDType):
        nulls = lengths != _UUID_BYTES
        rows: Array = np.zeros((len(starts), _UUID_BYTES), dtype=np.uint8)
        rows[~nulls] = _bytes_at(data, starts[~nulls], _UUID_BYTES)
        return Rows(rows, nulls)
    first: Array = np.zeros(len(starts), dtype=np.uint8)
    first[lengths > 0] = data[starts[lengths > 0]]
    nulls = first == 0xFF  # no byte of UTF-8
    if nulls.any():
        values = _strings(data, starts, np.where(nulls, 0, lengths))
    return Strings(values, nulls, marked=False)


def _width(part: NestedField) -> int:
    """Bytes of a value; 0 for text."""
    if isinstance(part.type, StringType):
        return 0
    return _UUID_BYTES if isinstance(part.type, UUIDType) else 4 if isinstance(part.type, _NARROW) else 8


def _bytes_at(data: Array, at: Array, width: int) -> Array:
    """(n, width) uint8: the `width` bytes from each of (n,) offsets on."""
    return np.ascontiguousarray(data[at[:, None] + np.arange(width)])


def _strings(data: Array, starts: Array, sizes: Array) -> pa.LargeBinaryArray:
    """Parts of a buffer as binary values."""
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    places = np.repeat(starts - offsets[:-1], sizes) + np.arange(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data[places]))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), buffers)
