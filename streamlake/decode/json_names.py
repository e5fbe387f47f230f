"""Which fields JSON records have: a field that is missing and one that is null are the same to a reader, and not to an update.

Used by the row decoder for partial updates, after the records were decoded. Invariant: exact for valid JSON objects, whose
letters are looked at all at once: names are the texts one level deep that a colon follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.json_values import parse_object
from streamlake.decode.text_columns import bytes_and_offsets

Array = Any  # numpy array

_QUOTE, _BACKSLASH, _COLON = ord('"'), ord("\\"), ord(":")
_BRACKETS: Array = np.zeros(256, dtype=np.int8)
_BRACKETS[np.frombuffer(b"{[", dtype=np.uint8)] = 1
_BRACKETS[np.frombuffer(b"}]", dtype=np.uint8)] = -1
_SPACE: Array = np.zeros(256, dtype=bool)
_SPACE[np.frombuffer(b" \t\r\n", dtype=np.uint8)] = True


def absent_fields(values: pa.Array, columns: dict[str, pa.Array]) -> dict[str, Array]:
    """For the top-level fields that some record lacks, (n,) bool. `values` (n,) are valid JSON objects, a binary array without
    nulls, and `columns` what the fields in question were decoded to: only nulls are looked at."""
    nulls = {
        name: column.is_null().to_numpy(zero_copy_only=False)
        for name, column in columns.items()
        if column.null_count
    }
    if not nulls:
        return {}
    rows = np.flatnonzero(np.logical_or.reduce(list(nulls.values())))
    some = values if len(rows) == len(values) else values.take(pa.array(rows))
    found = {}
    for name, has in zip(nulls, present_fields(some, list(nulls)), strict=True):
        absent = nulls[name].copy()
        absent[rows] &= ~has
        if absent.any():
            found[name] = absent
    return found


def present_fields(values: pa.Array, names: Sequence[str]) -> list[Array]:
    """For each name (n,) bool: whether the n records have it one level deep. Of what is no JSON object, anything is said."""
    data, offsets = bytes_and_offsets(values)
    found: list[Array] = [np.zeros(len(values), dtype=bool) for _ in names]
    if not len(data):
        return found
    begins, ends, odd = _names(data, offsets)
    owners = np.searchsorted(offsets, begins, side="right") - 1
    lengths = ends - begins
    for name, has in zip(names, found, strict=True):
        letters = np.frombuffer(name.encode(), dtype=np.uint8)
        at = np.flatnonzero(lengths == len(letters))
        for place, letter in enumerate(letters.tolist()):
            at = at[data[begins[at] + place] == letter]
        has[owners[at]] = True
    # Names that are written with escapes are rare, so those records are read one by one.
    for row in np.unique(owners[odd]).tolist():
        with suppress(ValueError):
            record = parse_object(values[row].as_py())
            for name, has in zip(names, found, strict=True):
                has[row] = name in record
    return found


def _names(data: Array, offsets: Array) -> tuple[Array, Array, Array]:
    """Where the names one level deep begin and end, without their quotation marks, and the numbers of those with escapes."""
    quotes = np.flatnonzero(data == _QUOTE)
    escapes = np.flatnonzero(data == _BACKSLASH)
    if len(escapes):
        quotes = quotes[~_are_escaped(quotes, escapes)]
    quotes = quotes[: len(quotes) // 2 * 2]
    brackets = np.flatnonzero(_BRACKETS[data])
    brackets = brackets[np.searchsorted(quotes, brackets) % 2 == 0]
    # A record ends at the level at which it began, so one sum does for all.
    levels = np.concatenate([[0], np.cumsum(_BRACKETS[data[brackets]], dtype=np.int64)])
    begins, ends = quotes[0::2], quotes[1::2]
    at = np.flatnonzero(levels[np.searchsorted(brackets, begins)] == 1)
    follows = np.minimum(ends[at] + 1, len(data) - 1)
    spaces = np.flatnonzero(_SPACE[data[follows]])
    while len(spaces):
        follows[spaces] = np.minimum(follows[spaces] + 1, len(data) - 1)
        spaces = spaces[_SPACE[data[follows[spaces]]] & (follows[spaces] < len(data) - 1)]
    at = at[data[follows] == _COLON]
    begins, ends = begins[at] + 1, ends[at]
    odd = np.flatnonzero(np.searchsorted(escapes, begins) != np.searchsorted(escapes, ends))
    return begins, ends, odd


def _are_escaped(quotes: Array, escapes: Array) -> Array:
    """Which quotation marks follow an odd number of backslashes."""
    first = np.flatnonzero(np.diff(escapes, prepend=-2) != 1)
    sizes = np.diff(first, append=len(escapes))
    ends = escapes[first] + sizes
    return np.isin(quotes, ends[sizes % 2 == 1], assume_unique=True)
