"""Deferred changes: changes that a task keeps until it has seen all other changes of its checkpoint.

These are changes of keys whose row came from another key (a key change) and lacks values. Such a row exists
only at the end of the checkpoint, so no later change of the key can be applied before that. Invariant: once a
change of a key is deferred, all later changes of that key are deferred as well, in their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.write.upsert.changes import Changes, joined_changes

Array = np.ndarray[Any, Any]


class DeferredChanges:
    """The deferred changes of one task.

    Keys are identified by their hashes. Two keys with one hash cost time, but the result is the same.
    """

    def __init__(self) -> None:
        self._parts: list[Changes] = []
        self._hashes: Array = np.zeros(0, dtype=np.uint64)

    def without(self, changes: Changes) -> Changes:
        """The changes to apply now, without those that are deferred."""
        if changes.key_changes is None and not len(self._hashes):
            return changes
        partial: Array = np.zeros(len(changes.keys), dtype=bool)
        for mask in changes.missing.values():
            partial |= mask
        arrived = changes.is_key_change & ~changes.removes & partial
        self._hashes = np.union1d(self._hashes, changes.keys.hashes[arrived])
        deferred = np.isin(changes.keys.hashes, self._hashes)
        if not deferred.any():
            return changes
        self._parts.append(changes.take(np.flatnonzero(deferred)))
        return changes.take(np.flatnonzero(~deferred))

    def take(self) -> Changes | None:
        """All deferred changes, which are then no longer held here; None when there are none."""
        parts, self._parts = self._parts, []
        return joined_changes(parts) if parts else None
