"""The changes of some keys in their order, so that one can ask for the last of them that knows a value.

Used where a change leaves values out: they come from the changes of its key before it. Invariant: a change that is late
is none, and the order is that by which the last change of a key is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.index.last_per_key import ranks
from streamlake.write.changes import Changes

Array = Any  # numpy array


class Folding:
    """`group` (n,) int64 is the key of each of the n changes, by number; `asked` are the numbers of the keys that matter,
    and `late` (n,) bool the changes that do not count."""

    def __init__(self, changes: Changes, group: Array, asked: Array, late: Array) -> None:
        wanted: Array = np.zeros(int(group.max()) + 1 if len(group) else 0, dtype=bool)
        wanted[asked] = True
        rows = np.flatnonzero(wanted[group] & ~late)
        by = [] if changes.guards is None else ranks(changes.guards, rows)
        order = np.lexsort((rows, changes.order[rows], *reversed(by), group[rows]))
        self._rows = rows[order]
        groups = group[self._rows]
        self._places: Array = np.full(len(group), -1, dtype=np.int64)
        self._places[self._rows] = np.arange(len(self._rows))
        self._starts: Array = np.searchsorted(groups, groups)

    def last(self, known: Array, at: Array, *, before: bool = False) -> Array:
        """(k,) int64: for k changes that count the last one of the same key, up to them and with them (`before`: without
        them), for which `known`, (n,) bool, is true; -1 where there is none."""
        if not len(at):
            return np.zeros(0, dtype=np.int64)
        latest = self._latest(known)
        places = self._places[at]
        found = latest[np.maximum(places - 1, 0) if before else places]
        counts = (found >= self._starts[places]) & ~(before & (places == 0))
        return np.where(counts, self._rows[found], -1)

    def _latest(self, known: Array) -> Array:
        """For each place in the order, the last one up to it for whose change `known` is true."""
        latest: Array = np.maximum.accumulate(np.where(known[self._rows], np.arange(len(self._rows)), -1))
        return latest
