"""Which changes come too late: they are older than what is known of their key, or than a truncate.

Asked when a change is written, and again at its commit where others have committed meanwhile. Invariant: one rule for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.index.guards import Guards
from streamlake.index.lookup import Found
from streamlake.write.log_places import against_truncates
from streamlake.write.upsert_key import UpsertKey

Array = Any  # numpy array


def is_late(key: UpsertKey, guards: Guards, found: Found, which: Array, floor: Guards | None) -> Array:
    """(n,) bool: whether n guards are below what is known of the keys `which` (n,), or from before a truncate at `floor`."""
    late: Array = np.zeros(len(which), dtype=bool)
    if found.guards is not None and found.guard_known is not None:
        known = found.guards.take(which)
        late = found.guard_known[which] & guards.below(known)
    if floor is not None:
        floor = floor.take(np.zeros(len(which), dtype=np.int64))
        if late.any():
            # What is not after the floor says less than the floor itself.
            late &= floor.below(known)
        late = late | places_of(key, guards).below(floor)
    return late


def places_of(key: UpsertKey, guards: Guards) -> Guards:
    """What guards count against truncates."""
    return guards if key.keeps_guards else against_truncates(guards)
