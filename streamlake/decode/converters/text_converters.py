"""Converters of values written as text: numbers, booleans and bytes of Canal and of MongoDB.

They implement `Converter`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.converters.converter import Converter, Leaf
from streamlake.decode.json import json_values
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.values import text_values
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import BooleanType, FixedType, IcebergType, IntegerType, StringType

_OPTIONS = JsonOptions()
_STRING, _BOOLEAN, _INTEGER = StringType(), BooleanType(), IntegerType()
_WHOLE = r"^-?[0-9]{1,19}$"
_NUMBER = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?$"
_TRUTH = {"1": True, "true": True, "0": False, "false": False}


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError("text is needed")
    return found


def _all_match(array: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py())


@dataclass(frozen=True)
class TextWhole(Leaf):
    """Digits as an int or a long."""

    type: IcebergType
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        if not _all_match(array, _WHOLE):
            raise NotBulkError
        try:
            return array.cast(arrow_type(self.type))
        except pa.ArrowInvalid as error:
            raise NotBulkError from error

    def _value(self, found: Any) -> int:
        text = _text(found)
        if not text.removeprefix("-").isdecimal() or not text.isascii():
            raise ValueError("a whole number is needed")
        whole: int = json_values.primitive_value(int(text), self.type, _OPTIONS)
        return whole


@dataclass(frozen=True)
class TextReal(Leaf):
    """Digits as a float or a double; NaN and infinities by their names."""

    type: IcebergType
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        if not _all_match(array, _NUMBER):
            raise NotBulkError
        found = array.cast(arrow_type(self.type))
        if pc.any(pc.is_inf(found), min_count=0).as_py():
            raise NotBulkError
        return found

    def _value(self, found: Any) -> float:
        text = _text(found)
        if text in ("NaN", "Infinity", "-Infinity"):
            return math.nan if text == "NaN" else float(text)
        real: float = json_values.primitive_value(text_values.decimal(text), self.type, _OPTIONS)
        return real


@dataclass(frozen=True)
class TextTruth(Leaf):
    """0, 1, true and false as a boolean, written as text or as numbers."""

    type: IcebergType = _BOOLEAN
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        encoded = array.dictionary_encode()
        known = [_TRUTH.get(text) for text in encoded.dictionary.to_pylist()]
        if None in known:
            raise NotBulkError
        return pa.array(known, pa.bool_()).take(encoded.indices)

    def _value(self, found: Any) -> bool:
        if isinstance(found, bool):
            return found
        truth = _TRUTH.get(str(found)) if isinstance(found, (int, str)) else None
        if truth is None:
            raise ValueError("0, 1, true or false is needed")
        return truth


@dataclass(frozen=True)
class NumberTruth(Leaf):
    """The numbers 0 and 1 as a boolean."""

    type: IcebergType = _BOOLEAN
    physical: IcebergType = _INTEGER

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        bounds = pc.min_max(array)
        if bounds["min"].is_valid and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() <= 1:
            raise NotBulkError
        return array.cast(pa.bool_())

    def _value(self, found: Any) -> bool:
        if isinstance(found, bool) or not isinstance(found, int) or found not in (0, 1):
            raise ValueError("0 or 1 is needed")
        return bool(found)


@dataclass(frozen=True)
class Latin1(Leaf):
    """Bytes written as the characters U+0000 to U+00FF."""

    type: IcebergType
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        ascii_only = pc.all(pc.string_is_ascii(array), min_count=0).as_py()
        if ascii_only and not isinstance(self.type, FixedType):
            return array.cast(pa.binary())
        try:
            found = [None if text is None else self._value(text) for text in array.to_pylist()]
        except ValueError as error:
            raise NotBulkError from error
        return pa.array(found, arrow_type(self.type))

    def _value(self, found: Any) -> bytes:
        try:
            data = _text(found).encode("latin-1")
        except UnicodeEncodeError as error:
            raise ValueError("a character beyond U+00FF stands for no byte") from error
        if isinstance(self.type, FixedType) and len(data) != self.type.length:
            raise ValueError(f"it holds {len(data)} bytes instead of {self.type.length}")
        return data


@dataclass(frozen=True)
class Digits:
    """Applies a converter of whole numbers to numbers that are written as text."""

    numbers: Converter
    physical: IcebergType = _STRING

    @property
    def type(self) -> IcebergType:
        """The column's type."""
        return self.numbers.type

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        if not _all_match(array, _WHOLE):
            raise NotBulkError
        try:
            return self.numbers.column(array.cast(arrow_type(self.numbers.physical)))
        except pa.ArrowInvalid as error:
            raise NotBulkError from error

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
        is_digits = isinstance(found, str) and found.isascii() and found.removeprefix("-").isdecimal()
        return self.numbers.value(int(found) if is_digits else found, path)
