"""Partition transforms of whole Arrow columns (spec: Partition Transforms, Appendix B).

Used to split rows into partitions when writing, and to check files against their partition. Invariant: for
every value `transform_array` gives what the scalar transform of `spec.partitioning.transforms` gives, and
null for null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.murmur3 import hash_bytes, hash_longs
from streamlake.spec.partitioning.transforms import (
    Bucket,
    Day,
    Hour,
    Identity,
    Month,
    Transform,
    Truncate,
    Void,
    Year,
)
from streamlake.spec.types.data_types import IcebergType

Array = np.ndarray[Any, Any]

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_PER_DAY = 86_400
_SECONDS_PER_HOUR = 3_600
_LOOKUP_DAYS = 1 << 20


def transform_array(transform: Transform, array: pa.Array, source_type: IcebergType) -> pa.Array:
    """The column of partition values of a source column.

    `array` is a primitive Arrow array of the Iceberg type `source_type`; dictionary-encoded and extension
    arrays are unwrapped. The result has the same length. Buckets, years, months and hours are int32, days are
    date32, truncated values keep their type. Raises FeatureUnsupportedError for an unknown transform or a
    type it does not apply to.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(transform, Identity):
        return array
    if isinstance(transform, Void):
        return pa.nulls(len(array), array.type)
    array = plain_array(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.int32())
    if isinstance(transform, Bucket):
        hashes = hash_array(array)
        buckets = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(transform.count)
        return _with_nulls(buckets.astype(np.int32), array)
    if isinstance(transform, Truncate):
        return _truncate(array, transform.width)
    if isinstance(transform, Day):
        return _with_nulls(_days(array), array).cast(pa.date32())
    if isinstance(transform, Month):
        return _with_nulls(_calendar(_days(array), "M"), array)
    if isinstance(transform, Year):
        return _with_nulls(_calendar(_days(array), "Y"), array)
    if isinstance(transform, Hour):
        return _with_nulls(_hours(array), array)
    raise FeatureUnsupportedError(
        f"The transform '{transform}' of a {source_type} column is unknown: rows cannot be written with a "
        "partition spec that uses it. Write with a spec whose transforms are bucket, truncate, year, month, "
        "day, hour, identity or void."
    )


def plain_array(array: pa.Array) -> pa.Array:
    """The array without dictionary encoding and without an extension type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def hash_array(array: pa.Array) -> Array:
    """The 32-bit hash of each value as (n,) uint32 (spec: Appendix B); the hash of a null is meaningless."""
    type_ = array.type
    if pa.types.is_decimal(type_):
        return _hash_decimals(array)
    if pa.types.is_timestamp(type_):
        return hash_longs(_micros(integers(array), type_.unit))
    if pa.types.is_time(type_):
        return hash_longs(_micros(integers(array), type_.unit))
    if pa.types.is_integer(type_) or pa.types.is_date32(type_):
        return hash_longs(integers(array).astype(np.int64, copy=False))
    if pa.types.is_fixed_size_binary(type_):
        width = type_.byte_width
        data = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint8)
        data = data[array.offset * width : (array.offset + len(array)) * width]
        return hash_bytes(data, np.arange(len(array), dtype=np.int64) * width, np.full(len(array), width))
    if _is_byte_string(type_):
        return hash_bytes(*byte_strings(array))
    raise FeatureUnsupportedError(
        f"A column of type {type_} has no bucket hash: choose another column or transform."
    )


def integers(array: pa.Array) -> Array:
    """The values of an integer, date, time or timestamp array as numpy integers; nulls are 0."""
    width = array.type.bit_width
    signed = not pa.types.is_unsigned_integer(array.type)
    values = (
        array.view(pa.int64() if width == 64 else pa.int32())
        if not pa.types.is_integer(array.type)
        else array
    )
    if values.null_count:
        values = pc.fill_null(values, 0)
    found = values.to_numpy(zero_copy_only=False)
    result: Array = found if signed else found.astype(np.int64)
    return result


def byte_strings(array: pa.Array) -> tuple[Array, Array, Array]:
    """(data uint8, starts, lengths) of a string or binary array; starts are offsets into `data`."""
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    if not len(array):
        empty: Array = np.zeros(0, dtype=np.int64)
        return np.zeros(0, dtype=np.uint8), empty, empty
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64 if large else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
    data = data[offsets[0] : offsets[-1]]
    return data, offsets[:-1] - offsets[0], offsets[1:] - offsets[:-1]


def _is_byte_string(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(type_)
        or kinds.is_large_string(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_string_view(type_)
        or kinds.is_binary_view(type_)
    )


def _with_nulls(values: Array, source: pa.Array) -> pa.Array:
    if not source.null_count:
        return pa.array(values)
    return pa.array(values, mask=source.is_null().to_numpy(zero_copy_only=False))


def _micros(ticks: Array, unit: str) -> Array:
    ticks = ticks.astype(np.int64, copy=False)
    if unit == "us":
        return ticks
    return ticks // 1_000 if unit == "ns" else ticks * (1_000_000 // _TICKS_PER_SECOND[unit])


def _days(array: pa.Array) -> Array:
    """Days since 1970-01-01, rounded down, as int32."""
    if pa.types.is_date32(array.type):
        return integers(array)
    ticks = _TICKS_PER_SECOND[_timestamp_unit(array.type)] * _SECONDS_PER_DAY
    return (integers(array) // ticks).astype(np.int32)


def _hours(array: pa.Array) -> Array:
    ticks = _TICKS_PER_SECOND[_timestamp_unit(array.type)] * _SECONDS_PER_HOUR
    return (integers(array) // ticks).astype(np.int32)


def _timestamp_unit(type_: pa.DataType) -> str:
    if not pa.types.is_timestamp(type_):
        raise FeatureUnsupportedError(
            f"Time transforms apply to dates and timestamps, not to a column of {type_}."
        )
    return str(type_.unit)


def _calendar(days: Array, unit: str) -> Array:
    """Months ("M") or years ("Y") since 1970 of days.

    A lookup table over the range of days replaces calendar arithmetic.
    """
    if not len(days):
        return np.zeros(0, dtype=np.int32)
    low, high = int(days.min()), int(days.max())
    if high - low >= _LOOKUP_DAYS:
        return days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int32)
    span: Array = np.arange(low, high + 1, dtype=np.int64).astype("datetime64[D]")
    result: Array = span.astype(f"datetime64[{unit}]").astype(np.int32)[days - low]
    return result


def _truncate(array: pa.Array, width: int) -> pa.Array:
    type_ = array.type
    if pa.types.is_integer(type_):
        values = integers(array)
        return _with_nulls(values - values % values.dtype.type(width), array)
    if pa.types.is_decimal(type_):
        return _truncate_decimals(array, width)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return pc.utf8_slice_codeunits(array, 0, width)
    if _is_byte_string(type_) and pa.types.is_string_view(type_):
        return pc.utf8_slice_codeunits(array.cast(pa.large_string()), 0, width)
    if _is_byte_string(type_) or pa.types.is_fixed_size_binary(type_):
        return pc.binary_slice(array.cast(pa.binary()), 0, width)
    raise FeatureUnsupportedError(f"truncate[{width}] does not apply to a column of type {type_}.")


def _decimal_words(array: pa.Array) -> Array:
    """The unscaled values as (n, 2) uint64: low and high half of the 128-bit two's complement."""
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(min(array.type.precision, 38), array.type.scale))
    if not len(array):
        return np.zeros((0, 2), dtype=np.uint64)
    words = np.frombuffer(array.buffers()[1], dtype="<u8").reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def _hash_decimals(array: pa.Array) -> Array:
    """Hash of the shortest big-endian two's complement bytes of the unscaled values."""
    words = _decimal_words(array)
    big_endian = words[:, ::-1].astype(">u8").view(np.uint8).reshape(-1, 16)
    sign = (big_endian[:, :1] >> 7) * np.uint8(0xFF)
    # A leading byte is redundant when it and the next byte's top bit only repeat the sign.
    redundant = (big_endian[:, :-1] == sign) & ((big_endian[:, 1:] ^ sign) < 0x80)
    skip = np.where(redundant.all(axis=1), 15, np.argmin(redundant, axis=1))
    starts = np.arange(len(words), dtype=np.int64) * 16 + skip
    return hash_bytes(np.ascontiguousarray(big_endian).reshape(-1), starts, 16 - skip)


def _truncate_decimals(array: pa.Array, width: int) -> pa.Array:
    """V - v mod width on the unscaled values, in 128-bit arithmetic over 32-bit limbs."""
    words = _decimal_words(array)
    modulus = np.uint64(width)
    rest: Array = np.zeros(len(words), dtype=np.uint64)
    for half, shift in ((1, 32), (1, 0), (0, 32), (0, 0)):
        limb = (words[:, half] >> np.uint64(shift)) & np.uint64(0xFFFFFFFF)
        rest = ((rest << np.uint64(32)) | limb) % modulus
    negative = words[:, 1] >> np.uint64(63) == 1
    rest = np.where(negative, (rest + modulus - np.uint64((1 << 128) % width)) % modulus, rest)
    low = words[:, 0] - rest
    high = words[:, 1] - (words[:, 0] < rest)
    packed = np.ascontiguousarray(np.stack([low, high], axis=1))
    validity = None
    if array.null_count:
        validity = pa.array(~array.is_null().to_numpy(zero_copy_only=False)).buffers()[1]
    type_ = pa.decimal128(min(array.type.precision, 38), array.type.scale)
    return pa.Array.from_buffers(type_, len(array), [validity, pa.py_buffer(packed)])
