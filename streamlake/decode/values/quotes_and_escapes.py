"""Quotation marks and backslashes of JSON texts: where texts begin and end, and what their escapes stand for.

Reads all letters of a block at once. Invariant: exact for records that are valid JSON. For other records
nothing is guaranteed, except that `unusual` reports invalid escapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.values.text_columns import bytes_and_offsets

_Array = np.ndarray[Any, Any]

QUOTE = ord('"')
BACKSLASH = ord("\\")
_MEANING: _Array = np.zeros(256, dtype=np.uint8)
"""The letter that an escape stands for; 0 where the letter after a backslash makes no one-letter escape."""
for _letter, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _MEANING[_letter] = _meant


def leads(escapes: _Array) -> _Array:
    """Of the positions of all backslashes, those that begin an escape: every other one of a row."""
    begins = np.diff(escapes, prepend=-2) != 1
    if begins.all():
        return escapes
    first = np.flatnonzero(begins)
    numbers = np.arange(len(escapes)) - np.repeat(first, np.diff(first, append=len(escapes)))
    result: _Array = escapes[numbers % 2 == 0]
    return result


def find_quotes(data: _Array, lead: _Array) -> _Array:
    """The positions of the quotation marks that begin and end texts; `lead` are those of `leads`."""
    quote_positions = data == QUOTE
    if len(lead):
        behind = lead + 1
        quote_positions[behind if behind[-1] < len(data) else behind[:-1]] = False
    return np.flatnonzero(quote_positions)


def unusual(data: _Array, lead: _Array) -> _Array:
    r"""The positions in `lead` without a one-letter escape: \u, and invalid escapes."""
    behind = lead + 1
    inside = behind < len(data)
    result: _Array = lead[~inside | (_MEANING[data[np.where(inside, behind, 0)]] == 0)]
    return result


def unescaped(texts: pa.StringArray) -> pa.StringArray:
    """Texts with their one-letter escapes replaced; the same array where there are none."""
    data, offsets = bytes_and_offsets(texts)
    escapes = np.flatnonzero(data == BACKSLASH)
    if not len(escapes):
        return texts
    lead = leads(escapes)
    letters = data.copy()
    letters[lead + 1] = _MEANING[letters[lead + 1]]
    bounds = (offsets - np.searchsorted(lead, offsets)).astype(np.int32)
    found = pa.StringArray.from_buffers(
        len(texts), pa.py_buffer(bounds), pa.py_buffer(np.delete(letters, lead))
    )
    return pc.if_else(texts.is_valid(), found, None) if texts.null_count else found
