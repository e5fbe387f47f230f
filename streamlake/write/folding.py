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
    """`group` (n,) int64 is the key of each of the n changes, by number; `asked` are the ascending numbers of the k keys
    that matter, and `late` (n,) bool the changes that do not count. Each key that is asked for has one that does."""

    def __init__(self, changes: Changes, group: Array, asked: Array, late: Array) -> None:
        wanted: Array = np.zeros(int(group.max()) + 1 if len(group) else 0, dtype=bool)
        wanted[asked] = True
        rows = np.flatnonzero(wanted[group] & ~late)
        by = [] if changes.guards is None else ranks(changes.guards, rows)
        order = np.lexsort((rows, changes.order[rows], *reversed(by), group[rows]))
        self._rows = rows[order]
        groups = group[self._rows]
        self._starts = np.searchsorted(groups, asked)
        self._ends = np.searchsorted(groups, asked, side="right") - 1

    def last(self, known: Array) -> Array:
        """(k,) int64: the last change of each key for which `known`, (n,) bool, is true; -1 where there is none."""
        places = np.where(known[self._rows], np.arange(len(self._rows)), -1)
        found = np.maximum.accumulate(places)[self._ends]
        return np.where(found >= self._starts, self._rows[found], -1)
