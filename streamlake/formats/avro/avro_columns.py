"""Encodes Arrow columns as Avro binary, whole columns at a time (Avro specification, Binary Encoding).

Every field of a row becomes one or two Arrow binary arrays, which are joined row by row into encoded records.
numpy makes the bytes, Arrow's join kernels put them together, and no Python code runs per row. Invariant: the
bytes fit the schema that `avro_schemas` makes of the same struct (spec: Appendix A, Avro).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.avro.avro_schemas import decimal_size
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

_PRESENT = 2
_DECIMAL128_BYTES = 16
_JOIN = pc.JoinOptions(null_handling="replace", null_replacement="")

assert sys.byteorder == "little", "Arrow's buffers are taken for little-endian"


def encoded_rows(columns: Sequence[pa.Array], struct: StructType) -> pa.BinaryArray:
    """One encoded record per row.

    `columns` are the fields of the struct in order, in the Arrow types of rows in memory.
    """
    pieces: list[pa.Array] = []
    for column, part in zip(columns, struct.fields, strict=True):
        pieces += _pieces(column, part.type, optional=not part.required)
    return _joined(pieces, len(columns[0]))


def _joined(pieces: list[pa.Array], rows: int) -> pa.BinaryArray:
    if not pieces:
        return pa.repeat(pa.scalar(b"", pa.binary()), rows)
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()), options=_JOIN)


def _pieces(array: pa.Array, type_: IcebergType, *, optional: bool) -> list[pa.Array]:
    """Binary arrays that, joined row by row, are the encoded values.

    Null rows of optional fields are a single 0.
    """
    valid = np.asarray(array.is_valid()) if optional else None
    if isinstance(type_, PrimitiveType):
        return _primitive(array, type_, valid)
    if isinstance(type_, StructType):
        parts: list[pa.Array] = []
        for at, part in enumerate(type_.fields):
            parts += _pieces(array.field(at), part.type, optional=not part.required)
        body = _joined(parts, len(array))
    elif isinstance(type_, ListType):
        items = _joined(
            _pieces(array.values, type_.element_type, optional=not type_.element_required), len(array.values)
        )
        body = _blocks(array, items)
    elif isinstance(type_, MapType):
        key = _pieces(array.keys, type_.key_type, optional=False)
        value = _pieces(array.items, type_.value_type, optional=not type_.value_required)
        body = _blocks(array, _joined(key + value, len(array.keys)))
    else:
        raise TypeError(f"{type_} is not an Iceberg type")
    if valid is None:
        return [body]
    return [
        _branches(valid),
        body if valid.all() else pc.if_else(pa.array(valid), body, pa.scalar(None, pa.binary())),
    ]


def _blocks(array: pa.Array, items: pa.BinaryArray) -> pa.BinaryArray:
    """Encoded lists or maps: each is one block of its encoded items, and an end marker."""
    target = pa.list_(items.type)
    listed = pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], null_count=-1, offset=array.offset, children=[items]
    )
    offsets = np.asarray(array.offsets)
    lengths = np.diff(offsets).astype(np.int64)
    counts = _ragged(*_varints(lengths), present=lengths > 0)
    end = pa.scalar(b"\x00", pa.binary())
    return pc.binary_join_element_wise(
        counts,
        pc.binary_join(listed, pa.scalar(b"", pa.binary())),
        end,
        pa.scalar(b"", pa.binary()),
        options=_JOIN,
    )


def _primitive(array: pa.Array, type_: PrimitiveType, valid: Any) -> list[pa.Array]:
    if isinstance(type_, (StringType, BinaryType)):
        texts = array.cast(pa.binary())
        lengths = np.asarray(pc.fill_null(pc.binary_length(texts), 0)).astype(np.int64)
        return [_ragged(*_varints(lengths), valid=valid), texts]
    if isinstance(type_, BooleanType):
        flags = np.asarray(pc.fill_null(array, False)).astype(np.uint8)
        return [_ragged(flags.reshape(-1, 1), None, valid=valid)]
    if isinstance(type_, DecimalType):
        size = decimal_size(type_.precision)
        return [_ragged(_raw(array, _DECIMAL128_BYTES)[:, :size][:, ::-1], None, valid=valid)]
    if isinstance(type_, (UUIDType, FixedType)):
        return [_ragged(_raw(array, array.type.byte_width), None, valid=valid)]
    if isinstance(type_, (FloatType, DoubleType)):
        return [_ragged(_raw(array, array.type.bit_width // 8), None, valid=valid)]
    width = array.type.bit_width // 8
    numbers: Numbers = (
        _raw(array, width).reshape(-1).view(np.int32 if width == 4 else np.int64).astype(np.int64)
    )
    return [_ragged(*_varints(numbers), valid=valid)]


def _raw(array: pa.Array, width: int) -> Bytes:
    """The values' buffer as rows of `width` bytes; the bytes of nulls are arbitrary."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), width), dtype=np.uint8)
    raw: Bytes = np.frombuffer(buffer, dtype=np.uint8)
    return raw[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)


def _varints(numbers: Numbers) -> tuple[Bytes, Numbers]:
    """Zig-zag varints as rows of bytes, and how many bytes of each row count."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    widest = int(zigzag.max()) if len(zigzag) else 0
    width = max(1, -(-widest.bit_length() // 7))
    out: Bytes = np.empty((len(numbers), width), dtype=np.uint8)
    lengths: Numbers = np.ones(len(numbers), dtype=np.int64)
    rest = zigzag
    for at in range(width):
        out[:, at] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        if at + 1 < width:
            more = rest > 0
            lengths += more
            out[:, at] |= more.astype(np.uint8) << 7
    return out, lengths


def _ragged(
    rows: Bytes, lengths: Numbers | None, *, valid: Any = None, present: Any = None
) -> pa.BinaryArray:
    """Rows of bytes as a binary array.

    `lengths` says how many bytes of each row count (None: all). `valid` (which rows are not null) puts a
    union's branch in front of each row and leaves out the bytes of nulls; `present` only leaves out bytes.
    """
    count, width = rows.shape
    sizes = np.full(count, width, dtype=np.int64) if lengths is None else lengths
    if valid is not None:
        rows = np.concatenate([np.where(valid, _PRESENT, 0).astype(np.uint8)[:, None], rows], axis=1)
        sizes = np.where(valid, sizes + 1, 1)
        width += 1
    if present is not None:
        sizes = np.where(present, sizes, 0)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    if int(offsets[-1]) == count * width:
        data = np.ascontiguousarray(rows).reshape(-1)
    else:
        data = rows[np.arange(width) < sizes[:, None]]
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    )


def _branches(valid: Any) -> pa.BinaryArray:
    return _ragged(np.where(valid, _PRESENT, 0).astype(np.uint8)[:, None], None)
