"""Times before which something is old, as users give them: a time, or an age such as "5d" or a timedelta."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

from streamlake import clock
from streamlake.errors import InvalidOptionError
from streamlake.read.scan import epoch_ms

Before = int | str | datetime | date | timedelta
"""Epoch milliseconds; a datetime or date (UTC); an ISO time; an age: a timedelta, or text such as "5d",
"12h", "30m", "90s".
"""
_AGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([dhms])\s*")
_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def before_ms(moment: Before | None, name: str = "older_than") -> int | None:
    """The time in epoch milliseconds; None for none. Raises InvalidOptionError, which names the argument."""
    if moment is None:
        return None
    if isinstance(moment, timedelta):
        return clock.now_ms() - round(moment.total_seconds() * 1000)
    age = _AGE.fullmatch(moment) if isinstance(moment, str) else None
    if age is not None:
        return clock.now_ms() - round(float(age[1]) * _MS[age[2]])
    try:
        return epoch_ms(moment)
    except InvalidOptionError:
        raise InvalidOptionError(
            f"{name}={moment!r} is neither an age such as '5d' or '12h' nor a time such as "
            "'2024-01-31T10:00:00Z'"
        ) from None


def age_ms(text: str | None, name: str) -> int | None:
    """An age such as "30d" in milliseconds; None for none. Raises InvalidOptionError, which names the
    argument.
    """
    if text is None:
        return None
    age = _AGE.fullmatch(text)
    if age is None:
        raise InvalidOptionError(f"{name}={text!r} is not an age such as '30d' or '12h'")
    return round(float(age[1]) * _MS[age[2]])
