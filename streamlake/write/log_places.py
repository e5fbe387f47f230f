"""Changes that are told by their order of arrival although others are told by their place in the database's log.

A row that a snapshot read has the snapshot's place, and what follows it may have a lower one: a transaction that was running
then had written its changes to the log before. A change may also say no place at all. Such a change comes after what its
key's partition brought before it: it inherits the greatest place that is known of the key. Where none is, its guard is the
place of the snapshot, but below every place of a change: it counts against truncates alone. Place in the flow: between
`changes` and the search for the last change of each key. Invariant: it is never late, but for a truncate after its snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.index.guards import Guards

Array = Any  # numpy array

NO_PLACE = np.iinfo(np.int64).min
"""The guard of a key of which no place is known."""
AFTER_ALL = np.iinfo(np.int64).max
"""Above every place. A guard of p - AFTER_ALL is of a key whose row a snapshot read at p: below every place, above NO_PLACE."""
PLACED = -1
FIRST = np.iinfo(np.int64).min
"""The order of arrival of what comes before all changes."""


@dataclass(frozen=True)
class Floor:
    """A truncate: its `place` in the log, 0 or more, and where it stands in the `order` of arrival, FIRST if it came before."""

    place: int
    order: int


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
    guards: Guards, arrival: Array, order: Array, group: Array, known: Array, floor: Floor | None
) -> Guards:
    """The guards of n changes, those by `arrival` (see `split_places`) with what they inherit.

    `order` (n,) int64 is the order of arrival, `group` (n,) the number of each change's key and `known` (m,) int64 what the
    index knows of the keys. What a snapshot read before a truncate, the place `floor`, stays below it, and is late; so is what
    says no place and came before the truncate, where nothing else tells that it is newer.
    """
    waits = arrival >= 0
    read = waits & (arrival != AFTER_ALL)
    told = np.where(waits, np.where(read, arrival - AFTER_ALL, NO_PLACE), guards.values)
    if floor is not None:
        # The floor says as much of what is older, and must not hide a snapshot's place.
        told = np.where((told >= 0) & (told < floor.place), NO_PLACE, told)
        known = np.where((known >= 0) & (known <= floor.place), NO_PLACE, known)
    found = np.maximum(known[group], np.where(waits, told, NO_PLACE))
    if len(known) < len(group):
        by = np.lexsort((order, group))
        values, ranked = np.unique(told[by], return_inverse=True)
        # Keys ascend, so that nothing is taken over from one key to the next.
        start = group[by] * len(values)
        before = values[np.maximum.accumulate(start + ranked) - start]
        found[by] = np.maximum(before, found[by])
    if floor is not None:
        lifted = np.maximum(found, floor.place - AFTER_ALL)
        after = read | (order >= floor.order)
        found = np.where(arrival < floor.place, NO_PLACE, np.where(after, lifted, found))
    return Guards(np.where(waits, found, told))


def against_truncates(guards: Guards) -> Guards:
    """The places that guards of changes with ROW_SEQUENCE count with against truncates: a snapshot's own, -1 for none."""
    values = guards.values
    return Guards(np.where(values < 0, values + AFTER_ALL, values))
