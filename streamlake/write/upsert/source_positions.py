"""Sequence values of changes that are ordered by arrival, among changes that are ordered by source position.

A source position is a position in the database's log. A row that a snapshot read has the snapshot's position.
Changes that follow it may have a lower one, because a transaction that was running then had written them to
the log before. A change may also have no position at all. Such a change comes after everything that its key's
partition brought before it, so it inherits the greatest position known of its key. Where none is known, its
sequence value is the position of the snapshot, ordered below the position of every change, so that it counts
against truncates alone.

This step lies between `changes` and the search for the last change of each key. Invariant: such a change is
never late, except for a truncate after its snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.index.keys.sequence_values import SequenceValues

Array = np.ndarray[Any, Any]

NO_PLACE = np.iinfo(np.int64).min
"""The sequence value of a key for which no source position is known."""
AFTER_ALL = np.iinfo(np.int64).max
"""A value above every source position.

A sequence value of p - AFTER_ALL means that a snapshot read the key's row at p. It is below
every position and above NO_PLACE.
"""
PLACED = -1
FIRST = np.iinfo(np.int64).min
"""The order of arrival of something that comes before all changes."""


@dataclass(frozen=True)
class Floor:
    """A truncate: its `place` is its source position, 0 or more.

    `order` is its order of arrival, FIRST if it came before all changes.
    """

    place: int
    order: int


def split_places(sequence: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Array | None]:
    """The column ROW_SEQUENCE of n changes without nulls, and their arrival codes.

    The codes are (n,) int64: the position at which a snapshot read the change, AFTER_ALL where nothing is
    known, PLACED for changes that have a position of their own. None: all changes have one.
    """
    lowest = pc.min(sequence).as_py()
    if not sequence.null_count and (lowest is None or lowest >= 0):
        return sequence, None
    known = sequence.is_valid().to_numpy(zero_copy_only=False)
    sequence = sequence.fill_null(0)
    places = sequence.to_numpy()
    arrival = np.where(known, np.where(places < 0, ~places, PLACED), AFTER_ALL)
    return sequence, arrival


def inherited(
    sequence_values: SequenceValues,
    arrival: Array,
    order: Array,
    group: Array,
    known: Array,
    floor: Floor | None,
) -> SequenceValues:
    """The sequence values of n changes, with those inherited that `arrival` marks (see `split_places`).

    `order` (n,) int64 is the order of arrival, `group` (n,) the number of each change's key, and `known` (m,)
    int64 what the index knows of the keys. A row that a snapshot read before a truncate at `floor` stays
    below it and is late. So is a change without a position that came before the truncate, unless something
    else shows that it is newer.
    """
    waits = arrival >= 0
    read = waits & (arrival != AFTER_ALL)
    stated = np.where(waits, np.where(read, arrival - AFTER_ALL, NO_PLACE), sequence_values.values)
    if floor is not None:
        # The floor says as much about older changes, and must not hide a snapshot's position.
        stated = np.where((stated >= 0) & (stated < floor.place), NO_PLACE, stated)
        known = np.where((known >= 0) & (known <= floor.place), NO_PLACE, known)
    found = np.maximum(known[group], np.where(waits, stated, NO_PLACE))
    if len(known) < len(group):
        by = np.lexsort((order, group))
        values, ranked = np.unique(stated[by], return_inverse=True)
        # Keys ascend, so nothing is taken over from one key to the next.
        start = group[by] * len(values)
        before = values[np.maximum.accumulate(start + ranked) - start]
        found[by] = np.maximum(before, found[by])
    if floor is not None:
        lifted = np.maximum(found, floor.place - AFTER_ALL)
        after = read | (order >= floor.order)
        found = np.where(arrival < floor.place, NO_PLACE, np.where(after, lifted, found))
    return SequenceValues(np.where(waits, found, stated))


def against_truncates(sequence_values: SequenceValues) -> SequenceValues:
    """The positions that sequence values count with against truncates.

    For a row of a snapshot this is the snapshot's own, -1 for none.
    """
    values = sequence_values.values
    return SequenceValues(np.where(values < 0, values + AFTER_ALL, values))
