"""Arrow values <-> the plain values that Avro stores (spec: Appendix A, Avro).

Dates, times and timestamps are integers, decimals big-endian bytes, UUIDs 16 bytes; maps with other than text keys are
lists of key-value records. Both directions convert whole columns; only the hand-over to fastavro is a Python list.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamlake.formats.arrow_schema import arrow_type
from streamlake.formats.avro_schemas import avro_name, decimal_size
from streamlake.spec.types import (
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StringType,
    StructType,
)

_DECIMAL128_BYTES = 16


def stored_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type whose Python values fastavro encodes for an Iceberg type."""
    if isinstance(type_, StructType):
        return pa.struct(
            [
                pa.field(avro_name(part.name), stored_type(part.type), not part.required)
                for part in type_.fields
            ]
        )
    if isinstance(type_, ListType):
        return pa.list_(pa.field("element", stored_type(type_.element_type), not type_.element_required))
    if isinstance(type_, MapType):
        key = pa.field("key", stored_type(type_.key_type), False)
        value = pa.field("value", stored_type(type_.value_type), not type_.value_required)
        if isinstance(type_.key_type, StringType):
            return pa.map_(key, value)
        return pa.list_(pa.field("entries", pa.struct([key, value]), False))
    if isinstance(type_, DecimalType):
        return pa.binary(decimal_size(type_.precision))
    target = arrow_type(type_)
    if pa.types.is_date32(target):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(target) else target


def to_stored(array: pa.Array, type_: PrimitiveType) -> pa.Array:
    """A leaf's values as stored."""
    if isinstance(type_, DecimalType):
        return _decimal_bytes(array, decimal_size(type_.precision))
    target = stored_type(type_)
    return array if array.type.equals(target) else array.view(target)


def _decimal_bytes(array: pa.Array, size: int) -> pa.Array:
    """decimal128 (little-endian) -> the low `size` bytes, big-endian."""
    raw = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint8)
    first = array.offset * _DECIMAL128_BYTES
    little = raw[first : first + len(array) * _DECIMAL128_BYTES].reshape(len(array), _DECIMAL128_BYTES)
    big = np.ascontiguousarray(little[:, :size][:, ::-1])
    return _fixed(big, size, array)


def decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Big-endian two's complement of a fixed size -> decimal128."""
    size = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint8)
    first = array.offset * size
    big = raw[first : first + len(array) * size].reshape(len(array), size)
    wide = np.empty((len(array), _DECIMAL128_BYTES), dtype=np.uint8)
    wide[:] = np.where(big[:, :1] & 0x80, 0xFF, 0)
    wide[:, : min(size, _DECIMAL128_BYTES)] = big[:, ::-1][:, :_DECIMAL128_BYTES]
    return _fixed(wide, _DECIMAL128_BYTES, array).view(target)


def _fixed(rows: np.ndarray, size: int, like: pa.Array) -> pa.Array:
    values = pa.Array.from_buffers(pa.binary(size), len(like), [None, pa.py_buffer(rows.tobytes())])
    if not like.null_count:
        return values
    validity = like.is_valid().buffers()[1]
    return pa.Array.from_buffers(pa.binary(size), len(like), [validity, values.buffers()[1]])
