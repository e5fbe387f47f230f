"""The quotation marks and backslashes of JSON texts: where texts begin and end, and what their escapes stand for.

Looks at all letters of a block at once. Invariant: exact for records that are valid JSON; of another one nothing is said but
where it may be told from those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.text_columns import bytes_and_offsets

_Array = Any

QUOTE = ord('"')
BACKSLASH = ord("\\")
_MEANING: _Array = np.zeros(256, dtype=np.uint8)
"""What a letter stands for behind a backslash; 0: it makes no escape of one letter."""
for _letter, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _MEANING[_letter] = _meant


def leads(escapes: _Array) -> _Array:
    """The places of those backslashes that begin an escape, of the places of all of them: every other one of those in a row."""
    begins = np.diff(escapes, prepend=-2) != 1
    if begins.all():
        return escapes
    first = np.flatnonzero(begins)
    numbers = np.arange(len(escapes)) - np.repeat(first, np.diff(first, append=len(escapes)))
    return escapes[numbers % 2 == 0]


def quotation_marks(data: _Array, lead: _Array) -> _Array:
    """The places of the quotation marks that begin and end texts; `lead` are those of `leads`."""
    marks = data == QUOTE
    if len(lead):
        behind = lead + 1
        marks[behind if behind[-1] < len(data) else behind[:-1]] = False
    return np.flatnonzero(marks)


def unusual(data: _Array, lead: _Array) -> _Array:
    """Those of the places `lead` where no escape of one letter stands: \\u and what is none."""
    behind = lead + 1
    inside = behind < len(data)
    return lead[~inside | (_MEANING[data[np.where(inside, behind, 0)]] == 0)]


def unescaped(texts: pa.StringArray) -> pa.StringArray:
    """Texts whose escapes are of one letter as what they stand for; the same where they have none."""
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
