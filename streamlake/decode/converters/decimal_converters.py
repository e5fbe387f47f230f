"""Converters of decimals as Kafka Connect and Debezium write them: the unscaled number's bytes, with a scale.

The scale is known from the schema, or stands beside the bytes. The bytes are big-endian two's complement, in
base64 in JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.converters.converter import Leaf, whole_number
from streamlake.decode.values import text_columns, text_values
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.exact_decimals import InexactDecimalError, require_room
from streamlake.spec.types.data_types import (
    BinaryType,
    DecimalType,
    IcebergType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
)

Array = np.ndarray[Any, Any]

_BYTES = BinaryType()
_VARIABLE = StructType((NestedField(0, "scale", IntegerType()), NestedField(0, "value", BinaryType())))
_MAX_SCALE = 38


@dataclass(frozen=True)
class Unscaled(Leaf):
    """The bytes of a number to divide by 10 to the power of `scale`, as a decimal or as plain digits."""

    type: IcebergType
    scale: int
    physical: IcebergType = _BYTES

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        return _typed(unscaled_decimals(array, self.scale), self.type)

    def _value(self, found: Any) -> Any:
        if not isinstance(found, str):
            raise ValueError("the unscaled number's bytes in base64 are needed")
        try:
            return _exact(found, self.scale, self.type)
        except ValueError as error:
            if text_values.DECIMAL_TEXT.fullmatch(found) is None:
                raise
            raise ValueError(
                f"{error}; if the connector sends numbers as text, set debezium.decimal-handling-mode=string"
            ) from error


@dataclass(frozen=True)
class VariableScale(Leaf):
    """{"scale": 2, "value": bytes} as a decimal or as plain digits."""

    type: IcebergType
    physical: IcebergType = _VARIABLE

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        scales, values = array.field(0), array.field(1)
        if scales.null_count > array.null_count or values.null_count > array.null_count:
            raise NotBulkError
        target = arrow_type(self.type)
        whole = pa.nulls(len(array), target)
        for scale in pc.unique(scales.drop_null()).to_pylist():
            here = pc.fill_null(pc.equal(scales, scale), False)
            found = _typed(unscaled_decimals(values.filter(here), scale), self.type)
            whole = pc.replace_with_mask(whole, here, found)
        return whole

    def _value(self, found: Any) -> Any:
        if not isinstance(found, dict) or not isinstance(found.get("value"), str):
            raise ValueError("an object with 'scale' and 'value' is needed")
        return _exact(found["value"], whole_number(found.get("scale")), self.type)


def unscaled_decimals(array: pa.Array, scale: int) -> pa.Array:
    """Binary two's complement numbers as decimal128(38, scale). Raises NotBulkError beyond 38 digits."""
    if abs(scale) > _MAX_SCALE:
        raise NotBulkError
    present = array.drop_null() if array.null_count else array
    data, offsets = text_columns.bytes_and_offsets(present)
    starts, ends = offsets[:-1], offsets[1:]
    sizes = ends - starts
    if len(sizes) and (sizes.min() < 1 or sizes.max() > 16):
        raise NotBulkError
    words: Array = np.empty((len(sizes), 2), dtype=np.int64)
    low_starts = np.maximum(starts, ends - 8)
    if len(sizes):
        words[:, 0] = _folded(data, low_starts, ends)
        words[:, 1] = words[:, 0] >> 63
        long = np.flatnonzero(sizes > 8)
        words[long, 1] = _folded(data, starts[long], low_starts[long])
    buffers = [None, pa.py_buffer(words.tobytes())]
    decimals = pa.Array.from_buffers(pa.decimal128(38, scale), len(present), buffers)
    try:
        require_room(decimals, decimals.type)
    except InexactDecimalError as error:
        raise NotBulkError from error
    return text_columns.spread(decimals, array)


def _folded(data: Array, starts: Array, ends: Array) -> Array:
    """Signed numbers of 1 to 8 bytes each, as (n,) int64."""
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    found = -(data[starts] >> 7).astype(np.int64)
    sizes = ends - starts
    for at in range(int(sizes.max())):
        here = sizes > at
        if here.all():
            found = found << 8 | data[starts + at]
        else:
            found[here] = found[here] << 8 | data[starts[here] + at]
    return found


def _typed(decimals: pa.Array, type_: IcebergType) -> pa.Array:
    if isinstance(type_, DecimalType):
        target = arrow_type(type_)
        # These types are known to have room for 38 digits.
        return decimals if decimals.type.equals(target) else text_columns.decimals(decimals, target)
    try:
        text = decimals.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise NotBulkError from error
    if pc.any(pc.match_substring(text, "E"), min_count=0).as_py():
        raise NotBulkError
    return text


def _exact(text: str, scale: int, type_: IcebergType) -> Any:
    data = text_values.base64_bytes(text, None)
    if not data:
        raise ValueError("a number has at least one byte")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    number = Decimal((int(unscaled < 0), digits, -scale))
    if isinstance(type_, DecimalType):
        return text_values.exact_decimal(number, type_.precision, type_.scale)
    assert isinstance(type_, StringType), type_
    return format(number, "f")
