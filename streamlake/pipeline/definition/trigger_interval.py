"""The interval of a trigger, "10 seconds", checked as Spark reads it, without Spark."""

from __future__ import annotations

import re

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion

_UNITS = ("microseconds", "milliseconds", "seconds", "minutes", "hours", "days", "weeks")
_KNOWN = {name: name for unit in _UNITS for name in (unit, unit.removesuffix("s"))}
_TOO_LONG = ("month", "months", "year", "years")
_SHORT = {
    "s": "seconds",
    "sec": "seconds",
    "secs": "seconds",
    "m": "minutes",
    "min": "minutes",
    "mins": "minutes",
    "ms": "milliseconds",
    "msec": "milliseconds",
    "h": "hours",
    "hr": "hours",
    "hrs": "hours",
    "d": "days",
}
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([^\s\d]*)\s*")


def require_interval(text: str, where: str) -> None:
    """Raise InvalidOptionError, which names `where`, unless Spark reads the text as an interval."""
    rest = text.strip().lower()
    rest = rest.removeprefix("interval ").strip()
    if not rest:
        raise _wrong(text, where, "it is empty")
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise _wrong(text, where, "a number and a unit are needed")
        number, unit = part.groups()
        if not unit:
            raise _wrong(text, where, "the unit is missing")
        if unit in _TOO_LONG:
            raise _wrong(text, where, f"Spark takes no {unit} here")
        if unit not in _KNOWN:
            near = _SHORT.get(unit) or suggestion(unit, _KNOWN)
            hint = f" (did you mean '{near}'?)" if near else ""
            raise _wrong(text, where, f"there is no unit '{unit}'{hint}")
        if number.startswith("-"):
            raise _wrong(text, where, "it is negative")
        if "." in number and not unit.startswith("second"):
            raise _wrong(text, where, "only seconds take a fraction")
        rest = rest[part.end() :]


def _wrong(text: str, where: str, problem: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{where} is '{text}': {problem}. Write a number and a unit, as in '10 seconds'; units are "
        f"{', '.join(_UNITS)}"
    )
