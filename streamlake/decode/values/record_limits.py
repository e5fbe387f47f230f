"""Limits on the size, depth and width of a record: the `record.*` options, parsed once.

A record beyond a limit is a damaged one: a reject with its offset, or a DecodeError. The limits keep readers
that recurse from exhausting their stack, and one record from using up the memory. They hold for everything
decoded within `applied`, on this thread.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.values.quotes_and_escapes import BACKSLASH, find_quotes, leads
from streamlake.decode.values.text_columns import bytes_and_offsets
from streamlake.errors import InvalidOptionError
from streamlake.options import check_option_names
from streamlake.records import MAX_RECORD_BYTES

Array = np.ndarray[Any, Any]

PREFIX = "record."
_BOUNDS = {"max-bytes": (1, 1 << 30), "max-depth": (1, 200), "max-fields": (1, 1_000_000)}
"""The range of each option. Beyond a depth of 200, Python's own recursion would fail before the limit."""
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""A text, up to the end of input where it has no end: each letter is looked at once, whatever they are."""
_OPEN, _CLOSE = ord("{"), ord("}")
_CURLY = _OPEN ^ ord("[")
_COLON = ord(":")
_FIELD_BYTES = 4
"""The minimum size of a field of an object."""
_BITS = 10
_STRETCH = 1 << _BITS
_PIECE = 1 << 20
"""Bytes whose masks stay in a core's own cache."""


@dataclass(frozen=True)
class RecordLimits:
    """Limits: `max_bytes` of a value or key; in JSON `max_depth` of nesting, `max_fields` of an object."""

    max_bytes: int = MAX_RECORD_BYTES
    max_depth: int = 128
    max_fields: int = 10_000

    @staticmethod
    def of(options: Mapping[str, str]) -> RecordLimits:
        """The limits from the `record.*` entries among a format's options. Raises InvalidOptionError."""
        own = {name: value for name, value in options.items() if name.startswith(PREFIX)}
        check_option_names(own, [PREFIX + name for name in _BOUNDS], "records")
        found = {}
        for part in fields(RecordLimits):
            name = part.name.replace("_", "-")
            text = own.get(PREFIX + name)
            if text is not None:
                least, most = _BOUNDS[name]
                if not text.strip().isdecimal() or not least <= int(text) <= most:
                    raise InvalidOptionError(
                        f"{PREFIX}{name} is '{text}'; it must be a whole number from {least} to {most}"
                    )
                found[part.name] = int(text)
        return RecordLimits(**found)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Applies these limits to everything that is decoded inside the context."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def require_depth(self, text: bytes) -> None:
        """Raises ValueError for a JSON text that is nested too deeply."""
        if text.count(b"{") + text.count(b"[") > self.max_depth and _depth(text) > self.max_depth:
            raise ValueError(f"it is nested too deeply: {PREFIX}max-depth is {self.max_depth}")

    def suspect(self, values: pa.Array) -> int | None:
        """The first of (n,) JSON texts, without nulls, that may exceed the limits of depth and fields.

        Texts that do exceed them are always found.
        """
        data, offsets = bytes_and_offsets(values)
        sizes = np.diff(offsets)
        found = []
        if len(sizes) and sizes.max() > 2 * self.max_depth:
            rows = np.flatnonzero((sizes > 2 * self.max_depth) & (_openings(data, offsets) > self.max_depth))
            if len(rows):
                found.append(rows[_depths(values.take(pa.array(rows))) > self.max_depth])
        if len(sizes) and sizes.max() > _FIELD_BYTES * self.max_fields:
            rows = np.flatnonzero(sizes > _FIELD_BYTES * self.max_fields)
            chosen, bounds = bytes_and_offsets(values.take(pa.array(rows)))
            colons = np.diff(np.searchsorted(np.flatnonzero(chosen == _COLON), bounds))
            found.append(rows[colons > self.max_fields])
        return min((int(rows[0]) for rows in found if len(rows)), default=None)

    def unbounded(self) -> RecordLimits:
        """These limits without depth and width, for records of which only some texts are searched."""
        return replace(self, max_depth=sys.maxsize, max_fields=sys.maxsize)

    def inside(self) -> RecordLimits:
        """These limits for the object in a field of the record."""
        return replace(self, max_depth=self.max_depth - 1)

    def too_large(self, raw: pa.RecordBatch) -> dict[int, str]:
        """{index: reason} of the records in a batch of RAW_RECORDS whose value or key has too many bytes."""
        found = {}
        for part, what in (("key", "its key"), ("value", "it")):
            sizes = pc.binary_length(raw.column(part))
            most = pc.max(sizes).as_py()
            if most is None or most <= self.max_bytes:
                continue
            reason = f"{what} has more bytes than {PREFIX}max-bytes allows, {self.max_bytes}"
            large = np.asarray(pc.greater(pc.fill_null(sizes, 0), self.max_bytes))
            found.update(dict.fromkeys(np.flatnonzero(large).tolist(), reason))
        return found


_CURRENT: ContextVar[RecordLimits] = ContextVar("record_limits", default=RecordLimits())  # noqa: B039


def current_limits() -> RecordLimits:
    """The limits that apply here; the defaults where none were applied."""
    return _CURRENT.get()


def without_limits(options: Mapping[str, str]) -> dict[str, str]:
    """A format's options without those of records."""
    return {name: value for name, value in options.items() if not name.startswith(PREFIX)}


def _openings(data: Array, offsets: Array) -> Array:
    """(n,): at most how many objects and arrays begin in the bytes `offsets`[i] to `offsets`[i + 1].

    What is in the same stretches of _STRETCH bytes is counted with them.
    """
    counts: Array = np.zeros(-(-len(data) // _STRETCH) + 1, dtype=np.int64)
    scratch: Array = np.empty(min(_PIECE, _STRETCH * (len(counts) - 1)), dtype=np.uint8)
    for begin in range(0, len(data), _PIECE):
        part = data[begin : begin + _PIECE]
        marked = scratch[: len(part)]
        np.bitwise_or(part, _CURLY, out=marked)
        np.equal(marked, _OPEN, out=marked.view(np.bool_))
        padded = -(-len(part) // _STRETCH) * _STRETCH
        scratch[len(part) : padded] = 0
        # Eight bytes are summed at once: a stretch has fewer words than a byte can count.
        sums = np.add.reduce(scratch[:padded].view(np.uint64).reshape(-1, _STRETCH // 8), axis=1)
        first = begin // _STRETCH + 1
        counts[first : first + len(sums)] = sums.view(np.uint8).reshape(-1, 8).sum(axis=1)
    until = np.cumsum(counts)
    found: Array = until[(offsets[1:] + _STRETCH - 1) >> _BITS] - until[offsets[:-1] >> _BITS]
    return found


def _depths(values: pa.Array) -> Array:
    """(n,): how deeply objects and arrays are nested in each JSON text."""
    data, offsets = bytes_and_offsets(values)
    quote_positions = find_quotes(data, leads(np.flatnonzero(data == BACKSLASH)))
    curly = data | _CURLY
    places = np.flatnonzero((curly == _OPEN) | (curly == _CLOSE))
    rows: Array = np.searchsorted(offsets, places, side="right") - 1
    before: Array = np.searchsorted(quote_positions, offsets)
    is_text = (np.searchsorted(quote_positions, places) - before[rows]) % 2 == 1
    places, rows = places[~is_text], rows[~is_text]
    found: Array = np.zeros(len(values), dtype=np.int64)
    if len(places):
        steps = np.where(curly[places] == _OPEN, 1, -1)
        levels = np.cumsum(steps)
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        found[rows[firsts]] = np.maximum.reduceat(levels, firsts) - levels[firsts] + steps[firsts]
    return found


def _depth(text: bytes) -> int:
    """How deeply objects and arrays are nested in a JSON text."""
    curly = np.frombuffer(_TEXTS.sub(b"", text), dtype=np.uint8) | _CURLY
    brackets = curly[(curly == _OPEN) | (curly == _CLOSE)]
    return int(np.cumsum(np.where(brackets == _OPEN, 1, -1)).max(initial=0))
