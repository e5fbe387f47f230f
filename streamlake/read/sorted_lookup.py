"""Looks up many 64-bit numbers in a sorted array at once.

A table over the leading bits of the array's range says where to search, so that a lookup takes a few steps
through neighbouring entries. Where numbers are dense, binary search is used instead. Numbers that occur in
the array several times are all found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_CROWDED = 32
_MOST_BITS = 26
_BLOCK_ROWS = 1 << 17


class SortedLookup:
    """Looks numbers up in `codes`, ascending (n,) uint64."""

    def __init__(self, codes: Array) -> None:
        self._codes = codes
        self._unique = bool((codes[1:] != codes[:-1]).all())
        self._starts: Array | None = None
        if len(codes):
            self._lowest, self._highest = codes[0], codes[-1]
            self._shift, self._starts = _table(codes)

    @property
    def nbytes(self) -> int:
        """Memory that the table takes beside the codes, in bytes."""
        return 0 if self._starts is None else int(self._starts.nbytes)

    def matches(self, asked: Array) -> Iterator[tuple[Array, Array]]:
        """Pairs of index arrays (into `asked`, into the codes) of equal numbers; every equal pair comes once.

        Within one pair of arrays no index of `asked` occurs twice.
        """
        if not len(self._codes):
            return
        for first in range(0, len(asked), _BLOCK_ROWS):
            for rows, entries in self._block(asked[first : first + _BLOCK_ROWS]):
                yield rows + first, entries

    def _block(self, asked: Array) -> Iterator[tuple[Array, Array]]:
        rows = np.flatnonzero((asked >= self._lowest) & (asked <= self._highest))
        at, stop = self._ranges(asked[rows])
        left = at < stop
        rows, at, stop = rows[left], at[left], stop[left]
        while len(rows):
            hits = self._codes[at] == asked[rows]
            if hits.any():
                yield rows[hits], at[hits]
            at += 1
            left = at < stop
            if self._unique:
                left &= ~hits
            rows, at, stop = rows[left], at[left], stop[left]

    def _ranges(self, wanted: Array) -> tuple[Array, Array]:
        """Where in the codes each number can be: from, to."""
        if self._starts is None:
            order = np.argsort(wanted)
            at: Array = np.empty(len(wanted), dtype=np.int64)
            stop: Array = np.empty(len(wanted), dtype=np.int64)
            ordered = wanted[order]
            at[order] = np.searchsorted(self._codes, ordered, side="left")
            stop[order] = np.searchsorted(self._codes, ordered, side="right")
            return at, stop
        slots = ((wanted - self._lowest) >> self._shift).astype(np.int64)
        return self._starts[slots], self._starts[slots + 1]


def _table(codes: Array) -> tuple[Any, Array | None]:
    """(bits to drop, where each slot starts), or no table where a slot holds many different numbers."""
    # About two slots per number: most lookups end at the first.
    bits = min(_MOST_BITS, len(codes).bit_length() + 1)
    span = int(codes[-1] - codes[0])
    shift = np.uint64(max(0, span.bit_length() - bits))
    slots = ((codes - codes[0]) >> shift).astype(np.int64)
    counts = np.bincount(slots, minlength=int(span >> int(shift)) + 1)
    if counts.max() > _CROWDED:
        return shift, None
    starts: Array = np.zeros(len(counts) + 1, dtype=np.int32 if len(codes) < 1 << 31 else np.int64)
    np.cumsum(counts, out=starts[1:])
    return shift, starts
