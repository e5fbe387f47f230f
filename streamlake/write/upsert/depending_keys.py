"""Tracks the keys of a checkpoint whose new row depends on the table's row.

The new row depends on it when it took over values from it, or when the row was missing. Flags in the
checkpoint's own index entries record this, so that the commit can find out whether another writer has changed
such a row meanwhile. Invariant: a row that takes over values from a row of the same checkpoint depends on the
table whenever that row does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.index.runs.entries import LACKS_VALUES, TOOK_VALUES
from streamlake.index.runs.lookup import Found
from streamlake.write.upsert.missing_values import Filled

Array = np.ndarray[Any, Any]


class DependingKeys:
    """The depending keys of one task.

    Keys are identified by their hashes. Two keys with one hash only cause a row to be written once more.
    """

    def __init__(self) -> None:
        self._known: dict[int, Array] = {
            flag: np.zeros(0, dtype=np.uint64) for flag in (TOOK_VALUES, LACKS_VALUES)
        }

    def flags(self, hashes: Array, filled: Filled, found: Found, own: Array) -> Array:
        """(m,) uint8: the flags of m keys with these hashes.

        `own` is true for the rows in `found` that this checkpoint wrote.
        """
        taken = filled.took >= 0
        from_own: Array = np.zeros(len(taken), dtype=bool)
        from_own[taken] = own[filled.took[taken]]
        flags: Array = np.zeros(len(taken), dtype=np.uint8)
        for flag, mask in ((TOOK_VALUES, taken & ~from_own), (LACKS_VALUES, filled.missed)):
            mask = mask | (from_own & np.isin(hashes, self._known[flag]))
            self._known[flag] = np.union1d(self._known[flag], hashes[mask])
            flags[mask] |= flag
        return flags
