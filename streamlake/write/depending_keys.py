"""Keys of a checkpoint whose new row depends on the row that the table has: values were taken over from it, or it was missed.

Told by flags of the checkpoint's own index entries, so that its commit can find out whether another writer has changed such a
row meanwhile. Invariant: a row that takes over values from an own row that depends, depends itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.index.entries import LACKS_VALUES, TOOK_VALUES
from streamlake.index.lookup import Found
from streamlake.write.unset_values import Filled

Array = Any  # numpy array


class DependingKeys:
    """Those of one task. Keys are known by their hashes: that another key has the same only lets a row be written once more."""

    def __init__(self) -> None:
        self._known: dict[int, Array] = {
            flag: np.zeros(0, dtype=np.uint64) for flag in (TOOK_VALUES, LACKS_VALUES)
        }

    def flags(self, hashes: Array, filled: Filled, found: Found, own: Array) -> Array:
        """(m,) uint8 for m keys with these hashes. `own` tells which rows in `found` this checkpoint has written."""
        taken = filled.took >= 0
        from_own: Array = np.zeros(len(taken), dtype=bool)
        from_own[taken] = own[filled.took[taken]]
        flags: Array = np.zeros(len(taken), dtype=np.uint8)
        for flag, mask in ((TOOK_VALUES, taken & ~from_own), (LACKS_VALUES, filled.missed)):
            mask = mask | (from_own & np.isin(hashes, self._known[flag]))
            self._known[flag] = np.union1d(self._known[flag], hashes[mask])
            flags[mask] |= flag
        return flags
