"""Converts single values to and from bytes and JSON, and truncates bounds.

Spec: Appendix D; Bound serialization.
"""

from __future__ import annotations

import struct
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from streamlake.errors import DataInvalidError
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
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

EPOCH_DATE = date(1970, 1, 1)
EPOCH = datetime(1970, 1, 1)
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_INT_TYPES = (IntegerType, DateType)
_LONG_TYPES = (LongType, TimeType, TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_BYTES_TYPES = (FixedType, BinaryType)


def unscaled(value: Decimal, scale: int) -> int:
    """The integer of a decimal at `scale` (12.34 at 2 -> 1234), without rounding.

    Raises ValueError when inexact.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a finite decimal")
    number = int("".join(map(str, digits)))
    shift = exponent + scale
    if shift >= 0:
        number *= int(10**shift)
    else:
        number, rest = divmod(number, int(10**-shift))
        if rest:
            raise ValueError(f"{value} does not fit scale {scale} without rounding")
    return -number if sign else number


def scaled(number: int, scale: int) -> Decimal:
    """The inverse of `unscaled`."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def minimal_bytes(number: int) -> bytes:
    """The number in two's complement, big-endian, in as few bytes as possible (at least one)."""
    length = ((number + (number < 0)).bit_length() // 8) + 1
    return number.to_bytes(length, "big", signed=True)


def to_bytes(type_: IcebergType, value: Any) -> bytes:
    """The value in binary single-value serialization (Appendix D).

    Raises DataInvalidError for a nested type.
    """
    if isinstance(type_, BooleanType):
        return b"\x01" if value else b"\x00"
    if isinstance(type_, _INT_TYPES):
        return _INT.pack(value)
    if isinstance(type_, _LONG_TYPES):
        return _LONG.pack(value)
    if isinstance(type_, FloatType):
        return _FLOAT.pack(value)
    if isinstance(type_, DoubleType):
        return _DOUBLE.pack(value)
    if isinstance(type_, StringType):
        return str(value).encode("utf-8")
    if isinstance(type_, UUIDType):
        return uuid_bytes(value)
    if isinstance(type_, _BYTES_TYPES):
        return bytes(value)
    if isinstance(type_, DecimalType):
        return minimal_bytes(unscaled(value, type_.scale))
    raise DataInvalidError(f"a value of type {type_} has no single-value bytes")


def from_bytes(type_: IcebergType, data: bytes) -> Any:
    """The inverse of `to_bytes`. Raises DataInvalidError for a nested type.

    Values written before a promotion (int bytes of a long) are read as promoted.
    """
    if isinstance(type_, BooleanType):
        return data != b"\x00"
    if isinstance(type_, _INT_TYPES):
        return _INT.unpack(data)[0]
    if isinstance(type_, _LONG_TYPES):
        return _INT.unpack(data)[0] if len(data) == 4 else _LONG.unpack(data)[0]
    if isinstance(type_, FloatType):
        return _FLOAT.unpack(data)[0]
    if isinstance(type_, DoubleType):
        return _FLOAT.unpack(data)[0] if len(data) == 4 else _DOUBLE.unpack(data)[0]
    if isinstance(type_, StringType):
        return data.decode("utf-8")
    if isinstance(type_, UUIDType):
        return uuid.UUID(bytes=bytes(data))
    if isinstance(type_, _BYTES_TYPES):
        return bytes(data)
    if isinstance(type_, DecimalType):
        return scaled(int.from_bytes(data, "big", signed=True), type_.scale)
    raise DataInvalidError(f"bytes cannot be read as a value of type {type_}")


def uuid_bytes(value: uuid.UUID | bytes | str) -> bytes:
    """The 16 bytes of a UUID that is given as a UUID, as bytes or as text."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    return bytes(value) if isinstance(value, bytes) else uuid.UUID(value).bytes


def truncate_lower(type_: IcebergType, value: Any, width: int) -> Any:
    """A lower bound of at most `width` code points (string) or bytes (binary).

    Values of other types do not change.
    """
    return value[:width] if isinstance(type_, (StringType, BinaryType, FixedType)) else value


def truncate_upper(type_: IcebergType, value: Any, width: int) -> Any:
    """An upper bound of at most `width` that is still >= value, or None when there is none."""
    if not isinstance(type_, (StringType, BinaryType, FixedType)) or len(value) <= width:
        return value
    if isinstance(type_, StringType):
        return _next_string(value[:width])
    return _next_bytes(value[:width])


def _next_string(prefix: str) -> str | None:
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        if 0xD800 <= code <= 0xDFFF:
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[:at] + chr(code)
    return None


def _next_bytes(prefix: bytes) -> bytes | None:
    for at in range(len(prefix) - 1, -1, -1):
        if prefix[at] < 0xFF:
            return prefix[:at] + bytes([prefix[at] + 1])
    return None


def format_date(days: int) -> str:
    """Days since 1970-01-01 as an ISO date."""
    return (EPOCH_DATE + timedelta(days=days)).isoformat()


def format_time(micros: int) -> str:
    """Microseconds since midnight as an ISO time."""
    return (EPOCH + timedelta(microseconds=micros)).time().isoformat()


def format_timestamp(micros: int) -> str:
    """Microseconds since 1970-01-01 as an ISO timestamp without offset."""
    return (EPOCH + timedelta(microseconds=micros)).isoformat()


def format_timestamp_ns(nanos: int) -> str:
    """Nanoseconds since 1970-01-01 as an ISO timestamp with nine fractional digits, without offset."""
    seconds, rest = divmod(nanos, 1_000_000_000)
    text = (EPOCH + timedelta(seconds=seconds)).isoformat()
    return f"{text}.{rest:09d}"


def parse_date(text: str) -> int:
    """The days since 1970-01-01 of an ISO date. Raises ValueError."""
    return (date.fromisoformat(text) - EPOCH_DATE).days


def parse_time(text: str) -> int:
    """The microseconds since midnight of an ISO time. Raises ValueError."""
    at = time.fromisoformat(text)
    return ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + at.microsecond


def parse_timestamp(text: str) -> int:
    """The microseconds since 1970-01-01 of an ISO timestamp. An offset is applied. Raises ValueError."""
    return parse_timestamp_ns(text) // 1000


def parse_timestamp_ns(text: str) -> int:
    """The nanoseconds since 1970-01-01 of an ISO timestamp with up to nine fractional digits.

    An offset is applied. Raises ValueError.
    """
    body, fraction, tail = text.strip().replace("Z", "+00:00").replace(" ", "T", 1), "", ""
    clock = body.partition("T")[2]
    cut = next((at for at, char in enumerate(clock) if char in "+-"), None)
    if cut is not None:
        body, tail = body[: len(body) - len(clock) + cut], clock[cut:]
    body, _, fraction = body.partition(".")
    at = datetime.fromisoformat(body + tail)
    if at.tzinfo is not None:
        at = at.astimezone(timezone.utc).replace(tzinfo=None)
    delta = at - EPOCH
    if fraction and not fraction.isdigit():
        raise ValueError(f"{text!r} is not a timestamp")
    return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + int((fraction + "0" * 9)[:9])


def to_json_value(type_: IcebergType, value: Any) -> Any:
    """The value in JSON single-value serialization (Appendix D)."""
    if value is None:
        return None
    if isinstance(type_, DateType):
        return format_date(value)
    if isinstance(type_, TimeType):
        return format_time(value)
    if isinstance(type_, (TimestampType, TimestamptzType)):
        return format_timestamp(value) + ("+00:00" if isinstance(type_, TimestamptzType) else "")
    if isinstance(type_, (TimestampNsType, TimestamptzNsType)):
        return format_timestamp_ns(value) + ("+00:00" if isinstance(type_, TimestamptzNsType) else "")
    if isinstance(type_, UUIDType):
        return str(uuid.UUID(bytes=uuid_bytes(value)))
    if isinstance(type_, _BYTES_TYPES):
        return bytes(value).hex().upper()
    if isinstance(type_, DecimalType):
        return f"{scaled(unscaled(value, type_.scale), type_.scale):f}"
    if isinstance(type_, StructType):
        return {str(part.field_id): to_json_value(part.type, value.get(part.name)) for part in type_.fields}
    if isinstance(type_, ListType):
        return [to_json_value(type_.element_type, item) for item in value]
    if isinstance(type_, MapType):
        return {
            "keys": [to_json_value(type_.key_type, key) for key in value],
            "values": [to_json_value(type_.value_type, item) for item in value.values()],
        }
    return value


def from_json_value(type_: IcebergType, obj: Any) -> Any:
    """The inverse of `to_json_value`."""
    if obj is None:
        return None
    if isinstance(type_, DateType):
        return parse_date(obj)
    if isinstance(type_, TimeType):
        return parse_time(obj)
    if isinstance(type_, (TimestampType, TimestamptzType)):
        return parse_timestamp(obj)
    if isinstance(type_, (TimestampNsType, TimestamptzNsType)):
        return parse_timestamp_ns(obj)
    if isinstance(type_, UUIDType):
        return uuid.UUID(obj)
    if isinstance(type_, _BYTES_TYPES):
        return bytes.fromhex(obj)
    if isinstance(type_, DecimalType):
        return Decimal(obj)
    if isinstance(type_, (FloatType, DoubleType)):
        return float(obj)
    if isinstance(type_, StructType):
        return {part.name: from_json_value(part.type, obj.get(str(part.field_id))) for part in type_.fields}
    if isinstance(type_, ListType):
        return [from_json_value(type_.element_type, item) for item in obj]
    if isinstance(type_, MapType):
        keys = [from_json_value(type_.key_type, key) for key in obj["keys"]]
        return dict(
            zip(keys, (from_json_value(type_.value_type, item) for item in obj["values"]), strict=True)
        )
    return obj
