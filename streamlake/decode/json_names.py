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

from streamlake.decode.json_shape import shape_of
from streamlake.decode.json_values import parse_object
from streamlake.decode.text_columns import bytes_and_offsets

Array = Any  # numpy array

_QUOTE, _BACKSLASH, _COLON = ord('"'), ord("\\"), ord(":")
_OPEN, _CLOSE = ord("{"), ord("}")
_CURLY = _OPEN ^ ord("[")
"""The bit that [ and ] lack of { and }; no other letters differ from these by it alone."""
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
    quotes, escapes = np.flatnonzero(data == _QUOTE), np.flatnonzero(data == _BACKSLASH)
    shape = None if len(escapes) else shape_of(values[0].as_py())
    if shape is not None and shape.match(data, offsets, quotes, None).rows is None:
        # All have the names of the first, because there are no quotation marks for others.
        for name, has in zip(names, found, strict=True):
            has[:] = (name,) in shape.values or (name,) in shape.objects
        return found
    begins, ends, odd = _names(data, quotes, escapes)
    owners: Array = np.repeat(np.arange(len(values)), np.diff(np.searchsorted(begins, offsets)))
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


def _names(data: Array, quotes: Array, escapes: Array) -> tuple[Array, Array, Array]:
    """Where the names one level deep begin and end, without their quotation marks, and the numbers of those with escapes, from
    the places of all quotation marks and backslashes."""
    if len(escapes):
        quotes = quotes[~_are_escaped(quotes, escapes)]
    quotes = quotes[: len(quotes) // 2 * 2]
    begins, ends = quotes[0::2], quotes[1::2]
    curly = data | _CURLY
    brackets = np.flatnonzero((curly == _OPEN) | (curly == _CLOSE))
    before: Array = np.searchsorted(begins, brackets)
    if len(ends):
        outside = (before == 0) | (ends[np.maximum(before, 1) - 1] < brackets)
        brackets, before = brackets[outside], before[outside]
    # A record ends at the level at which it began, so one sum does for all.
    levels: Array = np.cumsum(np.where(curly[brackets] == _OPEN, 1, -1))
    at = np.flatnonzero(np.repeat(levels == 1, np.diff(before, append=len(begins))))
    follows = np.minimum(ends[at] + 1, len(data) - 1)
    spaces = np.flatnonzero(_SPACE[data[follows]])
    while len(spaces):
        follows[spaces] = np.minimum(follows[spaces] + 1, len(data) - 1)
        spaces = spaces[_SPACE[data[follows[spaces]]] & (follows[spaces] < len(data) - 1)]
    at = at[data[follows] == _COLON]
    begins, ends = begins[at] + 1, ends[at]
    if not len(escapes):
        return begins, ends, escapes
    return begins, ends, np.flatnonzero(np.searchsorted(escapes, begins) != np.searchsorted(escapes, ends))


def _are_escaped(quotes: Array, escapes: Array) -> Array:
    """Which quotation marks follow an odd number of backslashes."""
    first = np.flatnonzero(np.diff(escapes, prepend=-2) != 1)
    sizes = np.diff(first, append=len(escapes))
    ends = escapes[first] + sizes
    return np.isin(quotes, ends[sizes % 2 == 1], assume_unique=True)
