"""Conversions of whole text columns to values of an Iceberg type, without a Python object per value.

Each function gives what `text_values` would give for every element, or raises `NotBulkError`; then the caller
goes record by record. Nulls stay nulls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.exact_decimals import InexactDecimalError, exact_decimals

_Array = np.ndarray[Any, Any]

_HEX: _Array = np.full(256, 255, dtype=np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16, dtype=np.uint8)
_HEX[np.frombuffer(b"ABCDEF", dtype=np.uint8)] = np.arange(10, 16, dtype=np.uint8)
_BASE64: _Array = np.full(256, 255, dtype=np.uint8)
_BASE64[
    np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
] = np.arange(64, dtype=np.uint8)
_PAD = ord("=")
_UUID_DASHES = (8, 13, 18, 23)
_UUID_DIGITS = [at for at in range(36) if at not in _UUID_DASHES]


class NotBulkError(Exception):
    """The column or the block cannot be read as a whole, which says nothing about any single record. `row` is
    the number of the record in the block at which a reader says that it failed (None: it does not say).
    """

    def __init__(self, reason: str = "", row: int | None = None) -> None:
        super().__init__(reason)
        self.row = row


def letter_table(letters: bytes) -> _Array:
    """(256,) bool: which bytes are among these letters."""
    return np.isin(np.arange(256), np.frombuffer(letters, dtype=np.uint8))


def dates(text: pa.Array) -> pa.Array:
    """ISO dates as date32. Raises NotBulkError."""
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid as error:
        raise NotBulkError from error


def times(text: pa.Array) -> pa.Array:
    """ISO times as time64 in microseconds. Raises NotBulkError."""
    if pc.any(pc.less(pc.binary_length(text), 5), min_count=0).as_py():
        raise NotBulkError  # an hour alone
    try:
        moments = pc.binary_join_element_wise("1970-01-01T", text, "").cast(pa.timestamp("us"))
        return moments.cast(pa.int64()).cast(pa.time64("us"))
    except pa.ArrowInvalid as error:
        raise NotBulkError from error


def uuids(text: pa.Array) -> pa.Array:
    """Canonical UUIDs as 16 fixed bytes. Raises NotBulkError."""
    present = text.drop_null() if text.null_count else text
    data, offsets = bytes_and_offsets(present)
    if not (np.diff(offsets) == 36).all():
        raise NotBulkError
    letters = data.reshape(-1, 36)
    if not (letters[:, _UUID_DASHES] == ord("-")).all():
        raise NotBulkError
    digits = _HEX[letters[:, _UUID_DIGITS]]
    if (digits > 15).any():
        raise NotBulkError
    packed = (digits[:, 0::2] << 4 | digits[:, 1::2]).astype(np.uint8)
    values = pa.Array.from_buffers(pa.binary(16), len(present), [None, pa.py_buffer(packed.tobytes())])
    return spread(values, text)


def base64_values(text: pa.Array, length: int | None) -> pa.Array:
    """Base64 with padding as binary, or as fixed bytes of `length`. Raises NotBulkError."""
    present = text.drop_null() if text.null_count else text
    data, offsets = bytes_and_offsets(present)
    sizes = np.diff(offsets)
    if (sizes % 4).any():
        raise NotBulkError
    filled = sizes > 0
    ends = offsets[1:]
    padding: _Array = np.zeros(len(sizes), dtype=np.int64)
    padding[filled] += data[ends[filled] - 1] == _PAD
    padding[filled] += (data[ends[filled] - 2] == _PAD) & (padding[filled] == 1)
    six = _BASE64[data]
    pads = np.flatnonzero(data == _PAD)
    if len(pads) != padding.sum() or (np.delete(six, pads) > 63).any():
        raise NotBulkError
    six[pads] = 0
    quads = six.reshape(-1, 4).astype(np.uint32)
    words = quads[:, 0] << 18 | quads[:, 1] << 12 | quads[:, 2] << 6 | quads[:, 3]
    triples = (
        np.stack([words >> 16 & 255, words >> 8 & 255, words & 255], axis=1).astype(np.uint8).reshape(-1)
    )
    out_ends = ends // 4 * 3
    keep: _Array = np.ones(len(triples), dtype=bool)
    keep[out_ends[padding >= 1] - 1] = False
    keep[out_ends[padding == 2] - 2] = False
    if triples[~keep].any():
        raise NotBulkError  # bits in the padding: not how an encoder writes it
    lengths = sizes // 4 * 3 - padding
    payload = pa.py_buffer(triples[keep].tobytes())
    if length is not None:
        if (lengths != length).any():
            raise NotBulkError
        return spread(pa.Array.from_buffers(pa.binary(length), len(present), [None, payload]), text)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = pa.Array.from_buffers(pa.binary(), len(present), [None, pa.py_buffer(bounds.tobytes()), payload])
    return spread(values, text)


def epoch_timestamps(numbers: pa.Array, unit_nanos: int, type_: pa.TimestampType) -> pa.Array:
    """Whole numbers of `unit_nanos` nanoseconds since 1970 as timestamps of `type_` ("us" or "ns").

    Raises NotBulkError.
    """
    resolution = 1_000 if type_.unit == "us" else 1
    try:
        if unit_nanos >= resolution:
            scaled = pc.multiply_checked(numbers, pa.scalar(unit_nanos // resolution, pa.int64()))
        else:
            factor = pa.scalar(resolution // unit_nanos, pa.int64())
            scaled = pc.divide(numbers, factor)
            if not pc.all(pc.equal(pc.multiply(scaled, factor), numbers), min_count=0).as_py():
                raise NotBulkError
    except pa.ArrowInvalid as error:
        raise NotBulkError from error
    return scaled.cast(type_)


def decimals(array: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """Numbers as text, whole numbers, or decimals of another scale, as decimals of `type_`.

    Raises NotBulkError.
    """
    try:
        return exact_decimals(array, type_)
    except InexactDecimalError as error:
        raise NotBulkError from error


def bytes_and_offsets(text: pa.Array) -> tuple[_Array, _Array]:
    """The bytes of a text column without nulls as one array, and the offsets into it, from 0."""
    _, offset_buffer, data_buffer = text.buffers()
    if not len(text):
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    return data, (offsets - offsets[0]).astype(np.int64)


def spread(values: pa.Array, like: pa.Array) -> pa.Array:
    """`values`, one for each element of `like` that is not null, at its index; nulls elsewhere."""
    if not like.null_count:
        return values
    valid = pc.is_valid(like).to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    return values.take(places)
