"""The moves of a data file's rows when it was rewritten: which of its rows is now where.

Rows that follow one another in the old file and in a new one are one stretch. Invariant: a position is in a
stretch exactly when its row was written again; a row that is in none had been deleted before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

_MOST = np.iinfo(np.int64).max


class Moved(NamedTuple):
    """Where n rows of an old file went: `there` (n,) bool says which were written.

    For those (m of them) `files` (m,) has the numbers of the new files, `positions` (m,) int64 the positions.
    """

    there: Array
    files: Array
    positions: Array


@dataclass(frozen=True, eq=False)
class FileMoves:
    """The stretches of one old file, ascending by `old`: all arrays are (s,), integers of any width.

    Row `old + i` of the old file is row `new + i` of the new file number `files`, for i below `rows`.
    """

    old: Array
    rows: Array
    files: Array
    new: Array

    def moved(self, positions: Array) -> Moved:
        """Where the rows at `positions` (n,) int64 went."""
        if not len(self.old):
            nothing: Array = np.empty(0, dtype=np.int64)
            return Moved(np.zeros(len(positions), dtype=bool), nothing, nothing)
        # Of the type of the stretches, because numpy would convert all of these otherwise.
        most = min(int(np.iinfo(self.old.dtype).max), _MOST)
        asked = np.minimum(positions, most).astype(self.old.dtype)
        at = np.maximum(np.searchsorted(self.old, asked, side="right") - 1, 0)
        ahead = positions - self.old[at].astype(np.int64)
        there: Array = (ahead >= 0) & (ahead < self.rows[at])
        at = at[there]
        return Moved(there, self.files[at], self.new[at].astype(np.int64) + ahead[there])

    @property
    def row_count(self) -> int:
        """How many rows of the old file were written."""
        return int(self.rows.sum())
