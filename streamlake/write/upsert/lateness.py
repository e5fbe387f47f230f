"""Late changes: those that are older than what is known of their key, or than a truncate.

Checked when a change is written, and again at the commit when others have committed
meanwhile. Invariant: one rule for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.runs.lookup import Found
from streamlake.write.upsert.source_positions import against_truncates
from streamlake.write.upsert.upsert_key import UpsertKey

Array = np.ndarray[Any, Any]


def is_late(
    key: UpsertKey, sequence_values: SequenceValues, found: Found, which: Array, floor: SequenceValues | None
) -> Array:
    """(n,) bool: whether n sequence values are late for the keys `which` (n,).

    They are when they are below what is known of the key, or from before a truncate at `floor`.
    """
    late: Array = np.zeros(len(which), dtype=bool)
    if found.sequence_values is not None and found.sequence_known is not None:
        known = found.sequence_values.take(which)
        late = found.sequence_known[which] & sequence_values.below(known)
    if floor is not None:
        floor = floor.take(np.zeros(len(which), dtype=np.int64))
        if late.any():
            # A sequence value that is not after the floor says less than the floor itself.
            late &= floor.below(known)
        late = late | places_of(key, sequence_values).below(floor)
    return late


def places_of(key: UpsertKey, sequence_values: SequenceValues) -> SequenceValues:
    """The source positions that sequence values count with against truncates."""
    return sequence_values if key.keeps_sequence_values else against_truncates(sequence_values)
