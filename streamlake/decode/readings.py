"""How a field of a JSON envelope becomes a column: what Arrow reads it as, and how that becomes the target's type.

A reading has two ways that give the same: `column` for many values that Arrow's JSON reader has read as `physical`,
and `value` for one value as Python's JSON reader gives it. Envelopes choose the readings of a row's fields from the
schema that comes with a record, or from the table's. Invariant: lossless, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode import json_values, text_columns, text_values
from streamlake.decode.json_options import JsonOptions
from streamlake.decode.json_values import RESOLUTION_NANOS, mismatch
from streamlake.decode.text_columns import NotBulkError
from streamlake.formats.arrow_schema import arrow_type
from streamlake.spec.types import (
    BinaryType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimeType,
)

_OPTIONS = JsonOptions()
_BINARY, _STRING, _DATE, _TIME = BinaryType(), StringType(), DateType(), TimeType()
_INTEGER, _LONG = IntegerType(), LongType()
_FLOAT, _DOUBLE = FloatType(), DoubleType()
_INT64 = 1 << 63
_DAY_MICROS = 86_400_000_000
# PostgreSQL's JDBC driver gives its infinite timestamps as these numbers of milliseconds; Debezium passes them on,
# whatever the unit is. Beyond them is no time that any database holds.
_INFINITY = 9_223_372_036_825_200_000
_MINUS_INFINITY = -9_223_372_036_832_400_000
# Its infinite dates come as 2146033979 and -2147472691; its finite ones lie between 4713 BC and the year 5874897.
_INFINITE_DAYS = 2_146_000_000


class Reading(Protocol):
    """One field's reading. `type` is what comes out, `physical` what Arrow's JSON reader is asked for."""

    @property
    def type(self) -> IcebergType: ...

    @property
    def physical(self) -> IcebergType: ...

    def column(self, array: pa.Array) -> pa.Array:
        """An array of `arrow_type(type)` for one of `physical`, nulls at the same places. Raises NotBulkError."""

    def value(self, found: Any, path: str) -> Any:
        """What pyarrow builds an element from, for a value of JSON. Raises FieldError, which begins with `path`."""


class Leaf:
    """A reading of a value without parts: subclasses say what `_value` is."""

    type: IcebergType

    def value(self, found: Any, path: str) -> Any:
        if found is None:
            return None
        try:
            return self._value(found)
        except (ValueError, OverflowError) as error:
            raise mismatch(path, self.type, found, str(error)) from error

    def _value(self, found: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Plain(Leaf):
    """As the JSON decoder reads the type; `numbers` says why a number is refused where text is needed."""

    type: IcebergType
    numbers: str | None = None

    @property
    def physical(self) -> IcebergType:
        return self.type

    def column(self, array: pa.Array) -> pa.Array:
        return array

    def value(self, found: Any, path: str) -> Any:
        if found is None or self.type.is_primitive:
            return super().value(found, path)
        return json_values.field_value({path: found}, NestedField(0, path, self.type), _OPTIONS)

    def _value(self, found: Any) -> Any:
        if self.numbers is not None and not isinstance(found, str):
            raise ValueError(self.numbers)
        return json_values.primitive_value(found, self.type, _OPTIONS)


@dataclass(frozen=True)
class Refused(Leaf):
    """A field whose values cannot become the type; nulls can."""

    type: IcebergType
    reason: str

    @property
    def physical(self) -> IcebergType:
        return self.type

    def column(self, array: pa.Array) -> pa.Array:
        if array.null_count < len(array):
            raise NotBulkError
        return array

    def _value(self, found: Any) -> Any:
        raise ValueError(self.reason)


@dataclass(frozen=True)
class Single(Leaf):
    """A number of 32 bits in a column of doubles: the very number, whose shortest digits are those of another double."""

    type: IcebergType = _DOUBLE
    physical: IcebergType = _FLOAT

    def column(self, array: pa.Array) -> pa.Array:
        return array.cast(pa.float64())

    def _value(self, found: Any) -> Any:
        return json_values.primitive_value(found, self.physical, _OPTIONS)


@dataclass(frozen=True)
class Days(Leaf):
    """Whole days since 1970 as a date."""

    type: IcebergType = _DATE
    physical: IcebergType = _INTEGER

    def column(self, array: pa.Array) -> pa.Array:
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low < -_INFINITE_DAYS or high > _INFINITE_DAYS):
            raise NotBulkError
        return array.cast(pa.date32())

    def _value(self, found: Any) -> Any:
        number = json_values.primitive_value(found, self.physical, _OPTIONS)
        if abs(number) > _INFINITE_DAYS:
            raise ValueError("it stands for infinity, which no date holds")
        return number


@dataclass(frozen=True)
class TimeOfDay(Leaf):
    """Whole numbers of `unit_nanos` since midnight as a time; 24:00 and what MySQL has beyond is no time of day."""

    unit_nanos: int
    type: IcebergType = _TIME
    physical: IcebergType = _LONG

    def column(self, array: pa.Array) -> pa.Array:
        if self.unit_nanos >= 1_000:
            micros = pc.multiply(array, pa.scalar(self.unit_nanos // 1_000, pa.int64()))
        else:
            factor = pa.scalar(1_000 // self.unit_nanos, pa.int64())
            micros = pc.divide(array, factor)
            if not _all(pc.equal(pc.multiply(micros, factor), array)):
                raise NotBulkError
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low < 0 or high * self.unit_nanos >= _DAY_MICROS * 1_000):
            raise NotBulkError
        return micros.cast(pa.time64("us"))

    def _value(self, found: Any) -> int:
        nanos = whole_number(found) * self.unit_nanos
        if not 0 <= nanos < _DAY_MICROS * 1_000:
            raise ValueError("a time of day is between 00:00 and 24:00")
        if nanos % 1_000:
            raise ValueError("it is finer than microseconds, which the column would lose")
        return nanos // 1_000


@dataclass(frozen=True)
class Epoch(Leaf):
    """Whole numbers of `unit_nanos` since 1970 as a timestamp of any kind."""

    type: IcebergType
    unit_nanos: int
    physical: IcebergType = _LONG

    def column(self, array: pa.Array) -> pa.Array:
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low <= _MINUS_INFINITY or high >= _INFINITY):
            raise NotBulkError
        return text_columns.epoch_timestamps(array, self.unit_nanos, arrow_type(self.type))

    def _value(self, found: Any) -> int:
        number = whole_number(found)
        if not _MINUS_INFINITY < number < _INFINITY:
            raise ValueError("it stands for infinity, which no timestamp holds")
        scaled, rest = divmod(number * self.unit_nanos, RESOLUTION_NANOS[type(self.type)])
        if rest:
            raise ValueError("it is finer than the column's unit, which would lose digits")
        if not -_INT64 <= scaled < _INT64:
            raise ValueError("the time is outside of what the column can hold")
        return scaled


@dataclass(frozen=True)
class Hex(Leaf):
    """Bytes written as hexadecimal digits."""

    type: IcebergType
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        try:
            found = [None if text is None else self._value(text) for text in array.to_pylist()]
        except ValueError as error:
            raise NotBulkError from error
        return pa.array(found, arrow_type(self.type))

    def _value(self, found: Any) -> bytes:
        if not isinstance(found, str):
            raise ValueError("hexadecimal text is needed")
        data = bytes.fromhex(found)
        if isinstance(self.type, FixedType) and len(data) != self.type.length:
            raise ValueError(f"it holds {len(data)} bytes instead of {self.type.length}")
        return data


@dataclass(frozen=True)
class Zulu(Leaf):
    """A date or a time of day as ISO text that ends with the zone Z, or has none."""

    type: IcebergType
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        text = pc.if_else(pc.ends_with(array, "Z"), pc.utf8_slice_codeunits(array, 0, -1), array)
        return text_columns.dates(text) if isinstance(self.type, DateType) else text_columns.times(text)

    def _value(self, found: Any) -> int:
        if not isinstance(found, str):
            raise ValueError("ISO text is needed")
        text = found.removesuffix("Z")
        return text_values.days(text) if isinstance(self.type, DateType) else text_values.time_micros(text)


@dataclass(frozen=True)
class ByForm:
    """Another reading for each form of JSON ("text", "number", "object"); `form` is the one that is read in bulk.

    For records without a schema: how a value is written says what it means, as far as the connector's options let it.
    """

    type: IcebergType
    forms: Mapping[str, Reading]
    form: str

    @property
    def physical(self) -> IcebergType:
        return self.forms[self.form].physical

    def column(self, array: pa.Array) -> pa.Array:
        return self.forms[self.form].column(array)

    def value(self, found: Any, path: str) -> Any:
        if found is None:
            return None
        reading = self.forms.get(form_of(found))
        if reading is None:
            raise mismatch(path, self.type, found, f"{' or '.join(self.forms)} is needed")
        return reading.value(found, path)


@dataclass(frozen=True)
class WellKnownBinary(Leaf):
    """A geometry {"wkb": base64, "srid": ...} as its well-known binary; the reference system is the column's own."""

    type: IcebergType = _BINARY

    @property
    def physical(self) -> IcebergType:
        return one_field("wkb", BinaryType())

    def column(self, array: pa.Array) -> pa.Array:
        found = array.field(0)
        if found.null_count > array.null_count:
            raise NotBulkError
        return found

    def _value(self, found: Any) -> bytes:
        if not isinstance(found, dict) or not isinstance(found.get("wkb"), str):
            raise ValueError("a geometry is an object with its well-known binary under 'wkb'")
        return text_values.base64_bytes(found["wkb"], None)


def one_field(name: str, type_: IcebergType) -> IcebergType:
    """A struct of one optional field."""
    return StructType((NestedField(0, name, type_),))


def form_of(found: Any) -> str:
    """The form of a value of JSON: "text", "number", "boolean", "object" or "array"."""
    if isinstance(found, bool):
        return "boolean"
    if isinstance(found, str):
        return "text"
    return "object" if isinstance(found, dict) else "array" if isinstance(found, list) else "number"


def whole_number(found: Any) -> int:
    """A number of JSON without fraction. Raises ValueError."""
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError("a whole number is needed")
    return found


def _all(condition: pa.Array) -> bool:
    return bool(pc.all(condition, min_count=0).as_py())
