"""Recognises torn entries of Spark's logs: entries that are empty, or only the beginning of one.

Spark gives an entry its name once it is written, but does not sync it. A loss of power leaves it empty or
full of zeros; an interrupted copy leaves half of it. When a query starts, Spark stops at a torn newest entry
of a log; it reads no older ones except the plan before it. Spark reads an entry of the commit log without its
second line as one without a watermark, but never writes such an entry. Invariant: what may be an entry of an
unknown version does not count as torn.
"""

from __future__ import annotations

import json

_VERSION = "v1"
_METADATA_AT, _OFFSETS_AT = 1, 2


def is_torn_plan(content: bytes) -> bool:
    """Whether an entry of the offset log is cut short.

    A whole one is a version, metadata and one offset per source.
    """
    lines = _lines(content)
    if lines is None:
        return True
    if lines[0].strip() != _VERSION:
        return _VERSION.startswith(lines[0].strip()) and len(lines) == 1
    if len(lines) <= _OFFSETS_AT or _is_cut(lines[_METADATA_AT]):
        return True
    return _is_cut(lines[-1])


def is_torn_done(content: bytes) -> bool:
    """Whether an entry of the commit log is cut short. A whole one is a version and metadata."""
    lines = _lines(content)
    if lines is None:
        return True
    if lines[0].strip() != _VERSION:
        return _VERSION.startswith(lines[0].strip()) and len(lines) == 1
    return len(lines) <= _METADATA_AT or _is_cut(lines[_METADATA_AT])


def _lines(content: bytes) -> list[str] | None:
    """The lines of an entry; None where it is empty or has zeros in its place."""
    text = content.decode("utf-8", "replace")
    return None if not text.strip() or "\0" in text else text.rstrip("\n").split("\n")


def _is_cut(line: str) -> bool:
    """Whether a line begins as JSON and ends before it is complete.

    An offset may be any text; Spark's own are JSON.
    """
    if not line.startswith(("{", "[")):
        return False
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
