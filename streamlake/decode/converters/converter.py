"""Converters of JSON fields to columns: the type that Arrow reads, and how it becomes the target's.

A converter has two methods that give the same: `column` for many values that Arrow's JSON reader has read as
`physical`, and `value` for one value as Python's JSON reader gives it. Envelopes choose the converters of a
row's fields from the schema that comes with a record, or from the table's. Invariant: lossless, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.json import json_values
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import RESOLUTION_NANOS, mismatch
from streamlake.decode.values import text_columns, text_values
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import (
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
# PostgreSQL's JDBC driver gives its infinite timestamps as these numbers of milliseconds, and Debezium passes
# them on, whatever the unit is. No database has timestamps beyond them.
_INFINITY = 9_223_372_036_825_200_000
_MINUS_INFINITY = -9_223_372_036_832_400_000
# Its infinite dates come as 2146033979 and -2147472691. Its finite dates lie between 4713 BC and the year
# 5874897.
_INFINITE_DAYS = 2_146_000_000


class Converter(Protocol):
    """Converts one field.

    `type` is the column's type, `physical` the type that Arrow's JSON reader reads it as.
    """

    @property
    def type(self) -> IcebergType:
        """The column's type."""

    @property
    def physical(self) -> IcebergType:
        """The type that Arrow's JSON reader is asked for."""

    def column(self, array: pa.Array) -> pa.Array:
        """An array of `arrow_type(type)` for one of `physical`, nulls at the same indexes.

        Raises NotBulkError.
        """

    def value(self, found: Any, path: str) -> Any:
        """The value that pyarrow builds an element from, for a JSON value.

        Raises FieldError, which begins with `path`.
        """


class Leaf:
    """Converts values without nested types; subclasses define `_value`."""

    type: IcebergType

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
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
    """Reads the type as the JSON decoder does; `numbers` is the reason to refuse a number for a text."""

    type: IcebergType
    numbers: str | None = None

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return self.type

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        return array

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
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
        """See Converter.physical."""
        return self.type

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column. Raises NotBulkError for any value."""
        if array.null_count < len(array):
            raise NotBulkError
        return array

    def _value(self, found: Any) -> Any:
        raise ValueError(self.reason)


@dataclass(frozen=True)
class Single(Leaf):
    """A 32-bit number in a column of doubles: its exact value, which its shortest digits would change."""

    type: IcebergType = _DOUBLE
    physical: IcebergType = _FLOAT

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        return array.cast(pa.float64())

    def _value(self, found: Any) -> Any:
        return json_values.primitive_value(found, self.physical, _OPTIONS)


@dataclass(frozen=True)
class Days(Leaf):
    """Whole days since 1970 as a date."""

    type: IcebergType = _DATE
    physical: IcebergType = _INTEGER

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
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
    """Whole numbers of `unit_nanos` since midnight as a time; 24:00 and MySQL's later times are refused."""

    unit_nanos: int
    type: IcebergType = _TIME
    physical: IcebergType = _LONG

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
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
    """Whole numbers of `unit_nanos` since 1970 as a timestamp of any type."""

    type: IcebergType
    unit_nanos: int
    physical: IcebergType = _LONG

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low <= _MINUS_INFINITY or high >= _INFINITY):
            raise NotBulkError
        return text_columns.epoch_timestamps(array, self.unit_nanos, arrow_type(self.type))

    def _value(self, found: Any) -> int:
        number = whole_number(found)
        if not _MINUS_INFINITY < number < _INFINITY:
            raise ValueError("it stands for infinity, which a timestamp cannot hold")
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
        """See Converter.column."""
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
    """A date or a time of day as ISO text, with the time zone Z or none."""

    type: IcebergType
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        text = pc.if_else(pc.ends_with(array, "Z"), pc.utf8_slice_codeunits(array, 0, -1), array)
        return text_columns.dates(text) if isinstance(self.type, DateType) else text_columns.times(text)

    def _value(self, found: Any) -> int:
        if not isinstance(found, str):
            raise ValueError("ISO text is needed")
        text = found.removesuffix("Z")
        return text_values.days(text) if isinstance(self.type, DateType) else text_values.time_micros(text)


@dataclass(frozen=True)
class ByForm:
    """One converter per JSON form ("text", "number", "object"); values of `form` are read in bulk.

    For records without a schema: the form of a value says what it means, as far as the connector's options
    allow it.
    """

    type: IcebergType
    forms: Mapping[str, Converter]
    form: str

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return self.forms[self.form].physical

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        return self.forms[self.form].column(array)

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
        if found is None:
            return None
        converter = self.forms.get(form_of(found))
        if converter is None:
            raise mismatch(path, self.type, found, f"{' or '.join(self.forms)} is needed")
        return converter.value(found, path)


@dataclass(frozen=True)
class WellKnownBinary(Leaf):
    """A geometry {"wkb": base64, "srid": ...} as its well-known binary.

    The reference system is the column's own.
    """

    type: IcebergType = _BINARY

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return one_field("wkb", BinaryType())

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
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
    """The form of a JSON value: "text", "number", "boolean", "object" or "array"."""
    if isinstance(found, bool):
        return "boolean"
    if isinstance(found, str):
        return "text"
    return "object" if isinstance(found, dict) else "array" if isinstance(found, list) else "number"


def whole_number(found: Any) -> int:
    """A JSON number without fraction. Raises ValueError."""
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError("a whole number is needed")
    return found


def _all(condition: pa.Array) -> bool:
    return bool(pc.all(condition, min_count=0).as_py())
