"""Changes that a task puts aside until it has seen all others: those of keys whose row came from another key and lacks values.

Such a row is not there before the end, so what follows it cannot be worked on before either. Invariant: all changes of a
key after the one that is put aside are put aside as well, in their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.write.changes import Changes, joined_changes

Array = Any  # numpy array


class Aside:
    """Keys are known by their hashes: that another key has the same costs nothing but time."""

    def __init__(self) -> None:
        self._parts: list[Changes] = []
        self._hashes: Array = np.zeros(0, dtype=np.uint64)

    def without(self, changes: Changes) -> Changes:
        """The changes but those that are put aside."""
        if changes.moved is None and not len(self._hashes):
            return changes
        partial: Array = np.zeros(len(changes.keys), dtype=bool)
        for mask in changes.unset.values():
            partial |= mask
        arrived = changes.is_moved & ~changes.removes & partial
        self._hashes = np.union1d(self._hashes, changes.keys.hashes[arrived])
        aside = np.isin(changes.keys.hashes, self._hashes)
        if not aside.any():
            return changes
        self._parts.append(changes.take(np.flatnonzero(aside)))
        return changes.take(np.flatnonzero(~aside))

    def take(self) -> Changes | None:
        """All that was put aside; None: nothing was."""
        parts, self._parts = self._parts, []
        return joined_changes(parts) if parts else None
