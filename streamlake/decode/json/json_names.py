"""Field presence in JSON records: distinguishes missing fields from nulls, for partial updates.

Used by the row decoder for partial updates, after the records were decoded. Invariant: exact for valid JSON
objects. All letters of a batch are read at once: names are the texts one level deep that a colon follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.json.json_values import parse_object
from streamlake.decode.json.record_template import Block, template_of
from streamlake.decode.values.quotes_and_escapes import BACKSLASH
from streamlake.decode.values.text_columns import letter_table

Array = np.ndarray[Any, Any]

_COLON = ord(":")
_OPEN, _CLOSE = ord("{"), ord("}")
_CURLY = _OPEN ^ ord("[")
"""The bit that distinguishes { and } from [ and ]; no other letters differ from these by it alone."""
_SPACE = letter_table(b" \t\r\n")


def absent_fields(values: pa.Array, columns: dict[str, pa.Array]) -> dict[str, Array]:
    """For the top-level fields that some record does not have, (n,) bool: where they are missing.

    `values` (n,) are valid JSON objects, a binary array without nulls. `columns` are the decoded columns of
    the fields in question; only their nulls are checked.
    """
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
    """For each name (n,) bool: whether the n records have it one level deep.

    The result is undefined for invalid JSON.
    """
    found: list[Array] = [np.zeros(len(values), dtype=bool) for _ in names]
    block = Block.of(values)
    data, offsets = block.data, block.offsets
    if not len(data):
        return found
    template = template_of(values[0].as_py())
    if template is not None and len(template.match(block, np.arange(len(values))).rows) == len(values):
        # All records have the names of the first one, because there are no quotation marks for others.
        for name, has in zip(names, found, strict=True):
            has[:] = (name,) in template.values or (name,) in template.objects
        return found
    begins, ends, odd = _names(data, block.quote_positions)
    owners: Array = np.repeat(np.arange(len(values)), np.diff(np.searchsorted(begins, offsets)))
    lengths = ends - begins
    for name, has in zip(names, found, strict=True):
        letters = np.frombuffer(name.encode(), dtype=np.uint8)
        at = np.flatnonzero(lengths == len(letters))
        for place, letter in enumerate(letters.tolist()):
            at = at[data[begins[at] + place] == letter]
        has[owners[at]] = True
    # Names with escapes are rare, so their records are read one by one.
    for row in np.unique(owners[odd]).tolist():
        with suppress(ValueError):
            record = parse_object(values[row].as_py())
            for name, has in zip(names, found, strict=True):
                has[row] = name in record
    return found


def _names(data: Array, quotes: Array) -> tuple[Array, Array, Array]:
    """Where the names one level deep begin and end, without quotes, and the indexes of those with escapes.

    `quotes` are the positions of the quotation marks that begin and end texts.
    """
    quotes = quotes[: len(quotes) // 2 * 2]
    begins, ends = quotes[0::2], quotes[1::2]
    curly = data | _CURLY
    brackets = np.flatnonzero((curly == _OPEN) | (curly == _CLOSE))
    before: Array = np.searchsorted(begins, brackets)
    if len(ends):
        outside = (before == 0) | (ends[np.maximum(before, 1) - 1] < brackets)
        brackets, before = brackets[outside], before[outside]
    # A record ends at the level at which it began, so one cumulative sum is enough for all records.
    levels: Array = np.cumsum(np.where(curly[brackets] == _OPEN, 1, -1))
    at = np.flatnonzero(np.repeat(levels == 1, np.diff(before, append=len(begins))))
    follows = np.minimum(ends[at] + 1, len(data) - 1)
    spaces = np.flatnonzero(_SPACE[data[follows]])
    while len(spaces):
        follows[spaces] = np.minimum(follows[spaces] + 1, len(data) - 1)
        spaces = spaces[_SPACE[data[follows[spaces]]] & (follows[spaces] < len(data) - 1)]
    at = at[data[follows] == _COLON]
    begins, ends = begins[at] + 1, ends[at]
    escapes = np.flatnonzero(data == BACKSLASH)
    return begins, ends, np.flatnonzero(np.searchsorted(escapes, begins) != np.searchsorted(escapes, ends))
