"""Entries of Spark's logs that are not whole: is what is there the beginning of one, or nothing?

Spark gives an entry its name when it has written it, but does not sync it: a loss of power leaves it empty, or full of zeros;
a copy that was cut short leaves half of it. Spark ends a query at its start when the newest entry of a log is like that, and
looks at no others but the plan before it. An entry of the commit log without its second line is one that Spark reads as one
without a watermark; it never writes that. Invariant: what may be an entry of a version that is not known here is not torn.
"""

from __future__ import annotations

import json

_VERSION = "v1"
_METADATA_AT, _OFFSETS_AT = 1, 2


def is_torn_plan(content: bytes) -> bool:
    """Whether an entry of the offset log, which is a version, metadata and one offset per source, is cut short."""
    lines = _lines(content)
    if lines is None:
        return True
    if lines[0].strip() != _VERSION:
        return _VERSION.startswith(lines[0].strip()) and len(lines) == 1
    if len(lines) <= _OFFSETS_AT or _is_cut(lines[_METADATA_AT]):
        return True
    return _is_cut(lines[-1])


def is_torn_done(content: bytes) -> bool:
    """Whether an entry of the commit log, which is a version and metadata, is cut short."""
    lines = _lines(content)
    if lines is None:
        return True
    if lines[0].strip() != _VERSION:
        return _VERSION.startswith(lines[0].strip()) and len(lines) == 1
    return len(lines) <= _METADATA_AT or _is_cut(lines[_METADATA_AT])


def _lines(content: bytes) -> list[str] | None:
    """None: there is nothing, or there are zeros in place of it."""
    text = content.decode("utf-8", "replace")
    return None if not text.strip() or "\0" in text else text.rstrip("\n").split("\n")


def _is_cut(line: str) -> bool:
    """Whether a line begins as JSON and does not end so. An offset may be any text; Spark's own are JSON."""
    if not line.startswith(("{", "[")):
        return False
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
