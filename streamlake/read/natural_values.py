"""Converts values of the specification's domain to Python's own types, as people and JSON expect them."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from streamlake.spec.types.data_types import (
    DateType,
    IcebergType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
)
from streamlake.spec.types.values import to_json_value

EPOCH_UTC = datetime(1970, 1, 1, tzinfo=timezone.utc)


def natural_value(type_: IcebergType, value: Any) -> Any:
    """The `date`, `time` or `datetime` (aware for timestamptz) of a time type; anything else unchanged.

    Nanoseconds, and years that Python's calendar does not have, stay as they are or become ISO texts.
    """
    if value is None:
        return None
    try:
        if isinstance(type_, DateType):
            return date(1970, 1, 1) + timedelta(days=value)
        if isinstance(type_, TimeType):
            return (datetime.min + timedelta(microseconds=value)).time()
        if isinstance(type_, TimestamptzType):
            return EPOCH_UTC + timedelta(microseconds=value)
        if isinstance(type_, TimestampType):
            return EPOCH_UTC.replace(tzinfo=None) + timedelta(microseconds=value)
        if isinstance(type_, TimestampNsType | TimestamptzNsType):
            return to_json_value(type_, value)
    except OverflowError:
        return value
    return value


def instant(timestamp_ms: int) -> datetime:
    """The UTC time of epoch milliseconds."""
    return EPOCH_UTC + timedelta(milliseconds=timestamp_ms)


def json_ready(value: Any) -> Any:
    """The value with everything that JSON lacks as text.

    Times are in ISO format, bytes in hex; decimals and UUIDs are written out.
    """
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
