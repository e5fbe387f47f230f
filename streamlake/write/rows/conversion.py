"""Converts Arrow arrays to the one Arrow form of an Iceberg type, without loss.

That form is `formats.arrow_schema.arrow_type`. Widening is free, and narrowing is checked value by
value. A conversion that would change a value or its meaning is refused: a rounded decimal, a truncated
float, a timestamp that gains or loses its time zone, text read as a number. Invariant: nothing is copied
where type and layout fit already.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.arrow_ids import arrow_parts
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.formats.arrow.constant_arrays import constant_array
from streamlake.formats.arrow.exact_decimals import exact_decimals
from streamlake.spec.types.data_types import (
    BinaryType,
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

_INTEGERS = (IntegerType, LongType)
_FLOATS = (FloatType, DoubleType)
_ZONED = (TimestamptzType, TimestamptzNsType)
_UNZONED = (TimestampType, TimestampNsType)
_HEX_DIGITS = 32
_NOT_HEX = 255


class NotConvertibleError(Exception):
    """A column does not fit the table's type.

    `row` is the first row whose value does not fit, None when the type as a whole does not.
    """

    def __init__(self, path: str, message: str, row: int | None = None) -> None:
        super().__init__(path, message, row)
        self.path = path
        self.message = message
        self.row = row


def converted(array: pa.Array, type_: IcebergType, path: str) -> pa.Array:
    """The array in the Arrow type of `type_`.

    `path` is the dotted column name. Raises NotConvertibleError.
    """
    target = arrow_type(type_)
    if isinstance(type_, (StructType, ListType, MapType)):
        return _nested(array, type_, target, path)
    if array.type == target:
        return array
    if pa.types.is_dictionary(array.type):
        return converted(array.dictionary_decode(), type_, path)
    if pa.types.is_run_end_encoded(array.type):
        return converted(pc.run_end_decode(array), type_, path)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(array, pa.ExtensionArray):
        return converted(array.storage, type_, path)
    if isinstance(type_, UUIDType):
        return _uuids(array, path)
    if isinstance(type_, FixedType):
        return _fixed(array, type_.length, path)
    if not _is_lossless(array.type, type_):
        raise _refused(array.type, type_, path)
    return _checked_cast(array, target, type_, path)


def is_convertible(source: IcebergType, type_: IcebergType) -> bool:
    """Whether values of another primitive type are accepted, each as far as it fits."""
    stored = arrow_type(source)
    if isinstance(type_, UUIDType):
        return isinstance(source, (StringType, BinaryType)) or source == FixedType(16)
    if isinstance(type_, FixedType):
        return isinstance(source, BinaryType)
    return bool(pa.types.is_null(stored)) or _is_lossless(stored, type_)


def _is_lossless(source: pa.DataType, type_: IcebergType) -> bool:
    """Whether values of `source` can be checked to be values of `type_`."""
    kinds = pa.types
    if isinstance(type_, _INTEGERS):
        return bool(kinds.is_integer(source))
    if isinstance(type_, _FLOATS):
        width = 32 if isinstance(type_, FloatType) else 64
        return bool(kinds.is_integer(source) or (kinds.is_floating(source) and source.bit_width <= width))
    if isinstance(type_, DecimalType):
        return bool(kinds.is_decimal(source) or kinds.is_integer(source))
    if isinstance(type_, DateType):
        return bool(kinds.is_date(source))
    if isinstance(type_, TimeType):
        return bool(kinds.is_time(source))
    if isinstance(type_, _ZONED):
        return bool(kinds.is_timestamp(source) and source.tz is not None)
    if isinstance(type_, _UNZONED):
        return bool(kinds.is_timestamp(source) and source.tz is None)
    if isinstance(type_, StringType):
        return bool(kinds.is_string(source) or kinds.is_large_string(source) or kinds.is_string_view(source))
    if isinstance(type_, BinaryType):
        return _is_binary(source) or bool(kinds.is_fixed_size_binary(source))
    return False


def _is_binary(source: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_binary(source) or kinds.is_large_binary(source) or kinds.is_binary_view(source))


def _refused(source: pa.DataType, type_: IcebergType, path: str) -> NotConvertibleError:
    advice = "cast the column to the table's type in the stream, or change the table's type"
    if pa.types.is_timestamp(source) and isinstance(type_, _UNZONED):
        advice = "its timestamps have a time zone and the table's have none; cast it to timestamp_ntz"
    elif pa.types.is_timestamp(source) and isinstance(type_, _ZONED):
        advice = "its timestamps have no time zone and the table's have one; cast it to timestamp"
    return NotConvertibleError(path, f"has the type {source}, the table's is {type_}: {advice}")


def _checked_cast(array: pa.Array, target: pa.DataType, type_: IcebergType, path: str) -> pa.Array:
    try:
        return _cast(array, target)
    except pa.ArrowInvalid as cause:
        row = _first_violation(array, target)
        value = "" if row is None else f" {array[row].as_py()!r}"
        raise NotConvertibleError(
            path,
            f"has the value{value} ({array.type}), which does not fit the table's type {type_} ({cause})",
            row,
        ) from cause
    except pa.ArrowNotImplementedError as cause:
        raise _refused(array.type, type_, path) from cause


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array cast to `target`. Raises pa.ArrowInvalid for a value that would change."""
    return exact_decimals(array, target) if pa.types.is_decimal(target) else array.cast(target)


def _first_violation(array: pa.Array, target: pa.DataType) -> int | None:
    """The row of the first value that cannot be cast, by halving; only called on the way to an error."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(array.slice(low, middle - low), target)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low if high > low else None


def _uuids(array: pa.Array, path: str) -> pa.Array:
    kinds = pa.types
    if kinds.is_fixed_size_binary(array.type) or _is_binary(array.type):
        return _fixed(array, 16, path)
    if not _is_lossless(array.type, StringType()):
        raise _refused(array.type, UUIDType(), path)
    digits = pc.replace_substring(array.cast(pa.string()), "-", "").fill_null("0" * _HEX_DIGITS)
    data, _, lengths = byte_strings(digits)
    _require_uuids(array, lengths == _HEX_DIGITS, path)
    nibbles = _HEX_VALUES[data.reshape(-1, 2)]
    _require_uuids(array, (nibbles != _NOT_HEX).reshape(-1, _HEX_DIGITS).all(axis=1), path)
    values: Any = (nibbles[:, 0] << 4) | nibbles[:, 1]
    validity = (
        pa.array(array.is_valid().to_numpy(zero_copy_only=False)).buffers()[1] if array.null_count else None
    )
    return pa.Array.from_buffers(pa.binary(16), len(array), [validity, pa.py_buffer(values)])


def _require_uuids(array: pa.Array, good: Any, path: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise NotConvertibleError(path, f"has the value {array[row].as_py()!r}, which is not a UUID", row)


def _hex_values() -> Any:
    values: Any = np.full(256, _NOT_HEX, dtype=np.uint8)
    for number, digit in enumerate("0123456789abcdef"):
        values[ord(digit)] = values[ord(digit.upper())] = number
    return values


_HEX_VALUES = _hex_values()


def _fixed(array: pa.Array, length: int, path: str) -> pa.Array:
    target = pa.binary(length)
    if array.type == target:
        return array
    if pa.types.is_fixed_size_binary(array.type) or not _is_binary(array.type):
        raise _refused(array.type, FixedType(length), path)
    array = array.cast(pa.binary())
    wrong = pc.fill_null(pc.not_equal(pc.binary_length(array), length), False)
    row = wrong.index(True).as_py()
    if row >= 0:
        found = len(array[row].as_py())
        raise NotConvertibleError(
            path, f"has a value of {found} bytes, the table's type is fixed[{length}]", row
        )
    return array.cast(target)


def _nested(array: pa.Array, type_: IcebergType, target: pa.DataType, path: str) -> pa.Array:
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(type_, StructType) and pa.types.is_struct(array.type):
        return _struct(array, type_, target, path)
    if isinstance(type_, ListType) and not pa.types.is_map(array.type) and _is_list_like(array.type):
        return _list(array, type_, target, path)
    if isinstance(type_, MapType) and pa.types.is_map(array.type):
        return _map(array, type_, target, path)
    raise _refused(array.type, type_, path)


def _struct(array: pa.Array, type_: StructType, target: pa.DataType, path: str) -> pa.Array:
    names = [part.name for part in arrow_parts(array.type)]
    known = [part.name for part in type_.fields]
    extra = [name for name in names if name not in known]
    if extra or len(set(names)) != len(names):
        problem = f"has the field '{extra[0]}', which the table lacks" if extra else "has a field twice"
        raise NotConvertibleError(path, f"{problem}; its fields are {', '.join(known)}")
    parts = []
    for part in type_.fields:
        if part.name in names:
            parts.append(converted(array.field(names.index(part.name)), part.type, f"{path}.{part.name}"))
        elif part.required and part.write_default is None:
            raise NotConvertibleError(f"{path}.{part.name}", "is required by the table and not in the rows")
        else:
            parts.append(constant_array(part.type, part.write_default, len(array)))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=arrow_parts(target), mask=mask)


def _list(array: pa.Array, type_: ListType, target: pa.DataType, path: str) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    array = _unsliced(array)
    values = _items(array.values, type_.element_type, f"{path}.element", array)
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), buffers, array.null_count, array.offset, children=[values]
    )


def _map(array: pa.Array, type_: MapType, target: pa.DataType, path: str) -> pa.Array:
    array = _unsliced(array)
    keys = _items(array.keys, type_.key_type, f"{path}.key", array)
    values = _items(array.items, type_.value_type, f"{path}.value", array)
    entries = pa.StructArray.from_arrays([keys, values], fields=arrow_parts(target))
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), buffers, array.null_count, array.offset, children=[entries]
    )


def _unsliced(array: pa.Array) -> pa.Array:
    """Lists or maps without the items of rows outside the slice, which need not convert."""
    items = array.keys if pa.types.is_map(array.type) else array.values
    ends_before = array.offsets[len(array)].as_py() < len(items)
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset or ends_before else array


def _items(values: pa.Array, type_: IcebergType, path: str, around: pa.Array) -> pa.Array:
    """Convert the values inside lists or maps. An error names the row that holds the value."""
    try:
        return converted(values, type_, path)
    except NotConvertibleError as error:
        if error.row is None:
            raise
        offsets = np.frombuffer(around.buffers()[1], dtype=np.int32)[: len(around) + 1]
        row = int(np.searchsorted(offsets, error.row, side="right")) - 1
        raise NotConvertibleError(error.path, error.message, row) from error


def _is_list_like(source: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(source)
        or kinds.is_large_list(source)
        or kinds.is_fixed_size_list(source)
        or kinds.is_list_view(source)
        or kinds.is_large_list_view(source)
    )
