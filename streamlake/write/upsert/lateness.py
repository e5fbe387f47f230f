"""Late changes: those that are older than what is known of their key, or than a truncate.

Checked when a change is written, and again at the commit when others have committed
meanwhile. Invariant: one rule for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.index.keys.guards import Guards
from streamlake.index.runs.lookup import Found
from streamlake.write.upsert.source_positions import against_truncates
from streamlake.write.upsert.upsert_key import UpsertKey

Array = Any  # numpy array


def is_late(key: UpsertKey, guards: Guards, found: Found, which: Array, floor: Guards | None) -> Array:
    """(n,) bool: whether n sequence values are late for the keys `which` (n,).

    They are when they are below what is known of the key, or from before a truncate at `floor`.
    """
    late: Array = np.zeros(len(which), dtype=bool)
    if found.guards is not None and found.guard_known is not None:
        known = found.guards.take(which)
        late = found.guard_known[which] & guards.below(known)
    if floor is not None:
        floor = floor.take(np.zeros(len(which), dtype=np.int64))
        if late.any():
            # A sequence value that is not after the floor says less than the floor itself.
            late &= floor.below(known)
        late = late | places_of(key, guards).below(floor)
    return late


def places_of(key: UpsertKey, guards: Guards) -> Guards:
    """The source positions that sequence values count with against truncates."""
    return guards if key.keeps_guards else against_truncates(guards)
