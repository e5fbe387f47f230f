"""Changes that are told by their order of arrival although others are told by their place in the database's log.

A row that a snapshot read has the snapshot's place, and what follows it may have a lower one: a transaction that was running
then had written its changes to the log before. A change may also say no place at all. Such a change comes after what its
key's partition brought before it: it inherits the greatest place that is known of the key. Place in the flow: between
`changes` and the search for the last change of each key. Invariant: it is never late, but for a truncate after its snapshot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.index.guards import Guards

Array = Any  # numpy array

NO_PLACE = np.iinfo(np.int64).min
"""The guard of a key of which no place is known: below every place."""
AFTER_ALL = np.iinfo(np.int64).max
PLACED = -1


def split_places(sequence: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Array | None]:
    """ROW_SEQUENCE of n changes without nulls, and where some have no place to be compared by: (n,) int64, the place at which
    a snapshot read them, or AFTER_ALL where nothing is known, PLACED for all others. None: all are placed."""
    lowest = pc.min(sequence).as_py()
    if not sequence.null_count and (lowest is None or lowest >= 0):
        return sequence, None
    known = sequence.is_valid().to_numpy(zero_copy_only=False)
    sequence = sequence.fill_null(0)
    places = sequence.to_numpy()
    arrival = np.where(known, np.where(places < 0, ~places, PLACED), AFTER_ALL)
    return sequence, arrival


def inherited(
    guards: Guards, arrival: Array, order: Array, group: Array, known: Array, floor: int | None
) -> Guards:
    """The guards of n changes, those by `arrival` (see `split_places`) with what they inherit.

    `order` (n,) int64 is the order of arrival, `group` (n,) the number of each change's key and `known` (m,) int64 what the
    index knows of the keys. What a snapshot read before a truncate, the place `floor`, stays below it, and is late.
    """
    waits = arrival >= 0
    found = known[group]
    if not waits.all():
        by = np.lexsort((order, group))
        placed = np.where(waits, NO_PLACE, guards.values)[by]
        values, ranked = np.unique(placed, return_inverse=True)
        # Keys ascend, so that nothing is taken over from one key to the next.
        start = group[by] * len(values)
        before = values[np.maximum.accumulate(start + ranked) - start]
        found[by] = np.maximum(before, found[by])
    if floor is not None:
        found = np.where(arrival < floor, NO_PLACE, np.maximum(found, floor))
    return Guards(np.where(waits, found, guards.values))
