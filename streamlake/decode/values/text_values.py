"""Conversions of one text to one value of an Iceberg type, exactly or not at all.

These functions define what a text means. The bulk conversions in `text_columns` either give the same or fail,
and then these functions decide. All raise ValueError with the reason.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import date
from decimal import Decimal, InvalidOperation
from uuid import UUID

# Years of more than four digits have a sign, as ISO 8601 requires; the year 0 is 1 BC.
_YEAR = r"(?:\d{4}|[+-]\d{4,9})"
_DATE = re.compile(rf"({_YEAR})-(\d{{2}})-(\d{{2}})")
_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,30}))?)?")
_TIMESTAMP = re.compile(
    rf"({_YEAR}-\d{{2}}-\d{{2}})"
    r"(?:[T ](\d{2}(?::\d{2}(?::\d{2}(?:\.\d{1,30})?)?)?)(Z|[+-]\d{2}(?::?\d{2})?)?)?"
)
DECIMAL_TEXT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_SECONDS_PER_DAY = 86_400
_INT32, _INT64 = 1 << 31, 1 << 63


def days(text: str) -> int:
    """Days since 1970, in 32 bits, of an ISO date like "2024-05-01", "-0043-03-15" or "+10000-01-01"."""
    found = _days(text)
    if not -_INT32 <= found < _INT32:
        raise ValueError("the date is outside of what the column can hold")
    return found


def _days(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("a date looks like 2024-05-01")
    year, month, day = (int(part) for part in match.groups())
    # The calendar repeats every 400 years; Python's dates begin with the year 1.
    cycles, rest = divmod(year - 1, _CYCLE_YEARS)
    return date(rest + 1, month, day).toordinal() + cycles * _CYCLE_DAYS - _EPOCH


def time_micros(text: str) -> int:
    """Microseconds since midnight of "12:30", "12:30:15" or "12:30:15.123456"."""
    return _nanos_of_day(text, 1_000) // 1_000


def timestamp_nanos(text: str, resolution: int) -> int:
    """Nanoseconds since 1970 of an ISO timestamp; without a time zone it is read as UTC.

    With a time zone it is converted to UTC. `resolution` is the column's unit in nanoseconds: digits below it
    must be zeros, because they would be lost.
    """
    match = _TIMESTAMP.fullmatch(text)
    if text in ("infinity", "-infinity"):
        raise ValueError("it stands for infinity, which a timestamp cannot hold")
    if match is None:
        raise ValueError("a timestamp looks like 2024-05-01T12:30:15.123456Z")
    day, time, zone = match.groups()
    if time is not None and len(time) == 2:
        time += ":00"
    nanos = _days(day) * _SECONDS_PER_DAY * 1_000_000_000
    if time is not None:
        nanos += _nanos_of_day(time, resolution)
    if zone not in (None, "Z"):
        digits = zone[1:].replace(":", "").ljust(4, "0")
        hours, minutes = int(digits[:2]), int(digits[2:])
        if hours > 23 or minutes > 59:
            raise ValueError(f"there is no zone offset {zone}")
        offset = (hours * 60 + minutes) * 60 * 1_000_000_000
        nanos += -offset if zone[0] == "+" else offset
    if not -_INT64 <= nanos // resolution < _INT64:
        raise ValueError("the time is outside of what the column can hold")
    return nanos


def timestamp_micros(text: str) -> int:
    """Microseconds since 1970 of an ISO timestamp."""
    return timestamp_nanos(text, 1_000) // 1_000


def has_zone(text: str) -> bool:
    """Whether an ISO timestamp has a time zone."""
    match = _TIMESTAMP.fullmatch(text)
    return match is not None and match[3] is not None


def exact_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """`value` with exactly `scale` digits after the point.

    Refused when it needs more digits than a column of `precision` and `scale` has.
    """
    if not value.is_finite():
        raise ValueError("it is not a finite number")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    stripped = list(digits)
    while stripped and stripped[-1] == 0 and exponent < -scale:
        stripped.pop()
        exponent += 1
    if not any(stripped):
        return Decimal((sign, (0,), -scale))
    if exponent < -scale:
        raise ValueError(f"it has more than {scale} digits after the point")
    if len(stripped) + exponent + scale > precision:
        raise ValueError(f"it has more than {precision - scale} digits before the point")
    return Decimal((sign, (*stripped, *([0] * (exponent + scale))), -scale))


def decimal(text: str) -> Decimal:
    """The Decimal of decimal digits, perhaps with an exponent."""
    if DECIMAL_TEXT.fullmatch(text) is None:
        raise ValueError("it is not a number")
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError("it is not a number") from error


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a canonical UUID text."""
    if _UUID.fullmatch(text) is None:
        raise ValueError("a uuid looks like f79c3e09-677c-4bbd-a479-3f349cb785e7")
    return UUID(text).bytes


def base64_bytes(text: str, length: int | None) -> bytes:
    """The bytes of base64 with padding; exactly `length` of them unless it is None."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("bytes are written in base64 with padding") from error
    if length is not None and len(data) != length:
        raise ValueError(f"it holds {len(data)} bytes instead of {length}")
    return data


def _nanos_of_day(text: str, resolution: int) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("a time looks like 12:30:15.123456")
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"there is no time {text}")
    fraction = (match[4] or "").rstrip("0")
    digits = 9 - len(str(resolution)) + 1
    if len(fraction) > digits:
        raise ValueError(f"it has more than {digits} digits of a second, which the column would lose")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)
