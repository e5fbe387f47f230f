"""SQL LIKE patterns: `%` is any text, `_` one character, and a backslash makes the next character literal."""

from __future__ import annotations

import re
from functools import lru_cache


def literal_prefix(pattern: str) -> tuple[str, str]:
    """The text before the first wildcard, unescaped, and the rest of the pattern from that wildcard on."""
    prefix: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char in "%_":
            return "".join(prefix), pattern[at:]
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            char = pattern[at]
        prefix.append(char)
        at += 1
    return "".join(prefix), ""


def regular_expression(pattern: str) -> str:
    """The pattern as the body of a regular expression, for a full match where `.` includes line ends."""
    parts: list[str] = []
    rest = pattern
    while True:
        prefix, rest = literal_prefix(rest)
        parts.append(re.escape(prefix))
        if not rest:
            return "".join(parts)
        parts.append(".*" if rest[0] == "%" else ".")
        rest = rest[1:]


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(regular_expression(pattern), re.DOTALL)


def matches(pattern: str, value: str) -> bool:
    """Whether the whole value matches the pattern."""
    return _compiled(pattern).fullmatch(value) is not None
