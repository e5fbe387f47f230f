"""Conversions of Avro values to column types, in bulk: (writer's type, column's type) -> the step.

Lossless or not at all: a step changes the form and never the value. A value that does not fit its column
raises DamagedError. Beside Avro's own promotions there are: a long into an int column, a decimal into one
with other digits, and a timestamp into another unit, each checked value by value; and the plain number, text
or bytes of a logical type. Timestamps with and without time zone become each other as UTC, as in JSON.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.avro.avro_leaves import Convert
from streamlake.decode.avro.avro_schema import AvroFixed, AvroType
from streamlake.decode.avro.avro_wire import DamagedError
from streamlake.decode.values import text_columns
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.formats.arrow.exact_decimals import InexactDecimalError, exact_decimals, require_room
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
    LongType,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_NANOS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_TIMESTAMPS: dict[type[IcebergType], int] = {
    TimestampType: 1_000,
    TimestamptzType: 1_000,
    TimestampNsType: 1,
    TimestamptzNsType: 1,
}
_DAY_MICROS = 86_400_000_000
_WIDE = 16
_MAX_PRECISION = 38


class NoConversionError(Exception):
    """The column's type cannot hold values of the writer's type."""


def conversion(writer: AvroType, target: IcebergType) -> Convert | None:
    """The step from the writer's plain values to the column; None when they are the same.

    `writer` is a type without nested types. Raises NoConversionError.
    """
    if writer.kind == "boolean" and isinstance(target, BooleanType):
        return None
    if writer.kind in ("int", "long"):
        return _of_integer(writer, target)
    if writer.kind == "float":
        if isinstance(target, FloatType):
            return None
        if isinstance(target, DoubleType):
            return lambda array: array.cast(pa.float64())
    if writer.kind == "double" and isinstance(target, DoubleType):
        return None
    if writer.kind in ("string", "enum"):
        return _of_text(target)
    if writer.kind in ("bytes", "fixed"):
        return _of_bytes(writer, target)
    raise NoConversionError


def _of_integer(writer: AvroType, target: IcebergType) -> Convert | None:
    if isinstance(target, (IntegerType, LongType)):
        plain = (writer.kind == "int") == isinstance(target, IntegerType)
        return None if plain else _cast_to(arrow_type(target), f"it does not fit {target}")
    name = writer.logical or ""
    if name == "date" and writer.kind == "int" and isinstance(target, DateType):
        return lambda array: array.view(pa.date32())
    unit = _NANOS.get(name.rpartition("-")[2])
    if name.startswith("time-") and unit is not None and isinstance(target, TimeType):
        return lambda array: _time(array, unit)
    if (
        name.startswith(("timestamp-", "local-timestamp-"))
        and unit is not None
        and type(target) in _TIMESTAMPS
    ):
        return _timestamps(unit, _TIMESTAMPS[type(target)], arrow_type(target))
    if not name and isinstance(target, DecimalType):
        return lambda array: _exact(array, target)
    if not name and isinstance(target, (FloatType, DoubleType)):
        return _cast_to(arrow_type(target), f"it does not fit {target} exactly")
    raise NoConversionError


def _of_text(target: IcebergType) -> Convert | None:
    if isinstance(target, StringType):
        return None
    if isinstance(target, BinaryType):
        return lambda array: array.cast(pa.binary())
    if isinstance(target, UUIDType):
        return _uuids
    raise NoConversionError


def _of_bytes(writer: AvroType, target: IcebergType) -> Convert | None:
    size = writer.size if isinstance(writer, AvroFixed) else None
    if isinstance(target, BinaryType):
        return None if size is None else lambda array: array.cast(pa.binary())
    if isinstance(target, FixedType):
        if size == target.length:
            return None
        if size is None:
            return _cast_to(pa.binary(target.length), f"it is not {target.length} bytes long")
    if isinstance(target, UUIDType) and size == 16:
        return None
    if isinstance(target, DecimalType) and writer.logical == "decimal":
        scale = writer.properties.get("scale", 0)
        if isinstance(scale, int) and 0 <= scale <= _MAX_PRECISION:
            return lambda array: _decimals(array, scale, target)
    if isinstance(target, StringType) and size is None and writer.logical is None:
        return _cast_to(pa.string(), "it is not UTF-8 text")
    raise NoConversionError


def _cast_to(type_: pa.DataType, problem: str) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        try:
            return array.cast(type_)
        except pa.ArrowInvalid as error:
            raise DamagedError(problem) from error

    return convert


def _time(array: pa.Array, unit: int) -> pa.Array:
    micros = _scaled(array.cast(pa.int64()), unit, 1_000)
    if pc.any(pc.or_(pc.less(micros, 0), pc.greater_equal(micros, _DAY_MICROS)), min_count=0).as_py():
        raise DamagedError("it is no time of a day")
    return micros.view(pa.time64("us"))


def _timestamps(unit: int, resolution: int, type_: pa.DataType) -> Convert:
    if unit == resolution:
        return lambda array: array.view(type_)
    return lambda array: _scaled(array, unit, resolution).view(type_)


def _scaled(array: pa.Array, unit: int, resolution: int) -> pa.Array:
    """Numbers of `unit` nanoseconds as numbers of `resolution` nanoseconds, exactly."""
    if unit >= resolution:
        try:
            return pc.multiply_checked(array, pa.scalar(unit // resolution, pa.int64()))
        except pa.ArrowInvalid as error:
            raise DamagedError("the time is outside of what the column can hold") from error
    factor = pa.scalar(resolution // unit, pa.int64())
    found = pc.divide(array, factor)
    if not pc.all(pc.equal(pc.multiply(found, factor), array), min_count=0).as_py():
        raise DamagedError("it is finer than the column's unit, which would lose digits")
    return found


def _uuids(array: pa.Array) -> pa.Array:
    try:
        return text_columns.uuids(array)
    except NotBulkError as error:
        raise DamagedError("a uuid looks like f79c3e09-677c-4bbd-a479-3f349cb785e7") from error


def _decimals(array: pa.Array, scale: int, target: DecimalType) -> pa.Array:
    """Decimals from big-endian two's complement of any length, with `scale` digits after the point."""
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    data, starts, lengths = byte_strings(array)
    if (lengths < 1).any():
        raise DamagedError("a decimal has no bytes")
    sign = np.where(data[starts] & 0x80, 0xFF, 0).astype(np.uint8)
    wide: Any = np.empty((len(array), _WIDE), dtype=np.uint8)
    wide[:] = sign[:, None]
    ends = starts + lengths
    for number in range(min(_WIDE, int(lengths.max(initial=0)))):
        has = lengths > number
        wide[has, number] = data[ends[has] - 1 - number]
    _refuse_longer(data, starts, lengths, sign, wide)
    found = pa.Array.from_buffers(
        pa.decimal128(_MAX_PRECISION, scale), len(array), [None, pa.py_buffer(wide)]
    )
    try:
        require_room(found, found.type)
    except InexactDecimalError as error:
        raise DamagedError("a decimal has more than 38 digits") from error
    return _exact(found, target)


def _exact(numbers: pa.Array, target: DecimalType) -> pa.Array:
    try:
        return exact_decimals(numbers, arrow_type(target))
    except InexactDecimalError as error:
        raise DamagedError(f"it does not fit {target} exactly") from error


def _refuse_longer(data: Any, starts: Any, lengths: Any, sign: Any, wide: Any) -> None:
    """Raises DamagedError where the bytes beyond 16 do more than repeat the sign."""
    for row in np.flatnonzero(lengths > _WIDE):
        beyond = data[starts[row] : starts[row] + lengths[row] - _WIDE]
        if (beyond != sign[row]).any() or (wide[row, -1] ^ sign[row]) & 0x80:
            raise DamagedError("a decimal has more than 38 digits")
