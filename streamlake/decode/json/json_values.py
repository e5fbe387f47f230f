"""JSON values as Iceberg values, record by record: defines what JSON means for each Iceberg type.

Exact or not at all. Slow (tens of microseconds a record), so it reads only records that the bulk path could
not take, and columns with maps. A failure names the field, its type, and the value found.

boolean is true/false; int and long a number without fraction in range; float and double a number (or "NaN",
"Infinity", "-Infinity"); decimal a number or text, whose digits beyond the scale must be zeros; date, time
and timestamps ISO text (or numbers, see json.timestamp-format); string text; uuid canonical text; binary and
fixed base64; struct an object; list an array; map an object, or an array of {"key", "value"}. A missing field
is null.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, DecimalException
from fractions import Fraction
from typing import Any

import pyarrow as pa

from streamlake.decode.json.json_options import NOTICE, JsonOptions
from streamlake.decode.values import text_values
from streamlake.decode.values.new_fields import NewFieldsError, is_value
from streamlake.decode.values.record_limits import current_limits
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

RESOLUTION_NANOS: dict[type[IcebergType], int] = {
    TimestampType: 1_000,
    TimestamptzType: 1_000,
    TimestampNsType: 1,
    TimestamptzNsType: 1,
}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGER = re.compile(r"-?\d{1,20}")
_SHOWN = 60


class FieldError(ValueError):
    """A value that does not fit its field; the message begins with the field's dotted name."""


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its names came twice."""

    twice: frozenset[str] = frozenset()


class _MinusZero(int):
    """-0, which equals 0 except in columns of floats."""


class _TooWideError(ValueError):
    """An object has more fields than a record may have."""


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    most = current_limits().max_fields
    if len(pairs) > most:
        raise _TooWideError(f"it has an object of {len(pairs)} fields: record.max-fields is {most}")
    found = _Object(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        found.twice = frozenset(name for name, count in counts.items() if count > 1)
    return found


def _whole(text: str) -> int:
    return _MinusZero() if text == "-0" else int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_int=_whole)


def parse_object(value: bytes) -> dict[str, Any]:
    """The JSON object in `value`; numbers with a fraction or an exponent are Decimals.

    Raises ValueError with the reason when it is not exactly one JSON object in UTF-8, or beyond the record
    limits.
    """
    current_limits().require_depth(value)
    try:
        found = _DECODER.decode(value.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except _TooWideError:
        raise
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from error
    except DecimalException as error:
        raise ValueError("it has a number whose exponent is too large") from error
    if not isinstance(found, dict):
        raise ValueError(f"it is not a JSON object but {_kind(found)}")
    return found


def row(found: dict[str, Any], fields: Sequence[NestedField], options: JsonOptions) -> dict[str, Any]:
    """Field name -> the value that pyarrow builds arrays from. Raises FieldError."""
    return _struct(found, fields, options, "")


def field_value(found: dict[str, Any], part: NestedField, options: JsonOptions) -> Any:
    """The value of one top-level field. Raises FieldError."""
    return _struct(found, (part,), options, "", alone=True)[part.name]


def _struct(
    found: Any, fields: Sequence[NestedField], options: JsonOptions, path: str, *, alone: bool = False
) -> dict[str, Any]:
    names = {part.name for part in fields}
    for name in getattr(found, "twice", ()):
        if name in names:
            raise FieldError(f"'{path}{name}' is there twice")
    if options.unknown_fields == "fail" and not alone:
        unknown = [name for name in found if name not in names]
        if unknown:
            raise FieldError(f"'{path}{unknown[0]}' is not in the schema (json.unknown-fields is 'fail')")
    if options.unknown_fields == NOTICE and not alone:
        known = {*names, *options.known} if not path else names
        if any(name not in known and is_value(value) for name, value in found.items()):
            raise NewFieldsError
    return {part.name: _value(found.get(part.name), part, options, f"{path}{part.name}") for part in fields}


def _value(value: Any, part: NestedField, options: JsonOptions, path: str) -> Any:
    if value is None:
        if part.required:
            raise FieldError(f"'{path}' is required, but it is missing or null")
        return None
    type_ = part.type
    if isinstance(type_, StructType):
        if not isinstance(value, dict):
            raise mismatch(path, type_, value, "an object is needed")
        return _struct(value, type_.fields, options, f"{path}.")
    if isinstance(type_, ListType):
        if not isinstance(value, list):
            raise mismatch(path, type_, value, "an array is needed")
        return [_value(item, type_.element, options, f"{path}.element") for item in value]
    if isinstance(type_, MapType):
        return _map(value, type_, options, path)
    try:
        return primitive_value(value, type_, options)
    except (ValueError, OverflowError) as error:
        raise mismatch(path, type_, value, str(error)) from error


def _map(value: Any, type_: MapType, options: JsonOptions, path: str) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        if getattr(value, "twice", ()):
            raise mismatch(path, type_, value, "a key is there twice")
        pairs = [(_key(key, type_, options, path), item) for key, item in value.items()]
    elif isinstance(value, list) and all(
        isinstance(item, dict) and item.keys() == {"key", "value"} for item in value
    ):
        pairs = [(_value(item["key"], type_.key, options, f"{path}.key"), item["value"]) for item in value]
    else:
        raise mismatch(path, type_, value, 'an object, or an array of {"key", "value"}, is needed')
    return [(key, _value(item, type_.value, options, f"{path}.value")) for key, item in pairs]


def _key(text: str, type_: MapType, options: JsonOptions, path: str) -> Any:
    """A map key, which JSON can write only as text."""
    key_type = type_.key_type
    value: Any = text
    if isinstance(key_type, (IntegerType, LongType)) and _INTEGER.fullmatch(text):
        value = int(text)
    elif isinstance(key_type, (FloatType, DoubleType)) and text not in _NOT_FINITE:
        value = Decimal(text) if text_values.DECIMAL_TEXT.fullmatch(text) else text
    elif isinstance(key_type, BooleanType):
        value = {"true": True, "false": False}.get(text, text)
    return _value(value, type_.key, options, f"{path}.key")


def primitive_value(value: Any, type_: IcebergType, options: JsonOptions) -> Any:
    """A JSON value other than null as a value of a primitive type. Raises ValueError with the reason."""
    if isinstance(type_, BooleanType):
        return _need(value, bool, "true or false is needed")
    if isinstance(type_, (IntegerType, LongType)):
        bits = 31 if isinstance(type_, IntegerType) else 63
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("a whole number is needed")
        if not -(1 << bits) <= value < 1 << bits:
            raise ValueError(f"it does not fit {bits + 1} bits")
        return value
    if isinstance(type_, (FloatType, DoubleType)):
        return _float(value, type_)
    if isinstance(type_, DecimalType):
        return text_values.exact_decimal(_decimal(value), type_.precision, type_.scale)
    resolution = RESOLUTION_NANOS.get(type(type_))
    if resolution is not None:
        return _timestamp(value, resolution, options)
    return _from_text(_need(value, str, "text is needed"), type_)


def _from_text(text: str, type_: IcebergType) -> Any:
    if isinstance(type_, StringType):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("it holds half of a surrogate pair, which is not Unicode text") from error
        return text
    if isinstance(type_, DateType):
        return text_values.days(text)
    if isinstance(type_, TimeType):
        return text_values.time_micros(text)
    if isinstance(type_, UUIDType):
        return text_values.uuid_bytes(text)
    if isinstance(type_, FixedType):
        return text_values.base64_bytes(text, type_.length)
    assert isinstance(type_, BinaryType), type_
    return text_values.base64_bytes(text, None)


def _need(value: Any, kind: type, problem: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(problem)
    return value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str):
        return text_values.decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, float)):
        raise ValueError("a number, or a number as text, is needed")
    return Decimal(value)


def _float(value: Any, type_: IcebergType) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("a number is needed")
    if isinstance(value, float):
        return value
    if isinstance(value, _MinusZero):
        return -0.0
    if isinstance(type_, FloatType):
        # Rounded to 32 bits directly: going through 64 bits could round twice.
        converted = pa.scalar(str(value)).cast(pa.float32()).as_py()
    else:
        converted = float(value)
    if math.isinf(converted):
        raise ValueError("it is too large")
    return float(converted)


def _timestamp(value: Any, resolution: int, options: JsonOptions) -> int:
    if isinstance(value, str):
        return text_values.timestamp_nanos(value, resolution) // resolution
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise ValueError("ISO text is needed")
    unit = options.epoch_nanos
    if unit is None:
        likely = _likely_unit(value)
        raise ValueError(
            "a number can be seconds, milliseconds, ...: set json.timestamp-format, of this size most likely "
            f"to {likely}"
        )
    if not -40 < Decimal(value).adjusted() < 40:
        raise ValueError("the time is outside of what the column can hold")
    scaled = Fraction(value) * unit / resolution
    if scaled.denominator != 1:
        raise ValueError(
            "it is finer than the column's unit, which would lose digits; make the column a timestamp_ns, or "
            f"correct json.timestamp-format, which is {options.timestamp_format}"
        )
    if not -(1 << 63) <= scaled < 1 << 63:
        raise ValueError(
            "the time is outside of what the column can hold; json.timestamp-format is "
            f"{options.timestamp_format}, and of this size it is most likely {_likely_unit(value)}"
        )
    return int(scaled)


def _likely_unit(value: int | Decimal) -> str:
    """The value of json.timestamp-format that makes a number a time of these decades."""
    digits = Decimal(value).adjusted()
    names = {11: "epoch-seconds", 14: "epoch-millis", 17: "epoch-micros"}
    return next((name for limit, name in names.items() if digits < limit), "epoch-nanos")


def mismatch(path: str, type_: IcebergType, value: Any, problem: str) -> FieldError:
    """The error for a JSON value that does not fit the type of the field at `path`."""
    if isinstance(value, (dict, list)):
        shown = _kind(value)
    else:
        shown = f"{_kind(value)} {str(value) if isinstance(value, Decimal) else json.dumps(value)}"
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "..."
    return FieldError(f"'{path}' is {type_}, but found {shown}: {problem}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    kinds: dict[type, str] = {str: "text", list: "an array", dict: "an object", type(None): "null"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "something else")
