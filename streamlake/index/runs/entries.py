"""Entries of the key index in memory: key -> (data file, position), sorted by the key's hash.

Writer tasks make them for the rows they wrote, and runs store them. Invariant: ascending by hash; `files` are
ordinals into `paths`, except those of tombstones, which mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamlake.index.keys.keys import Keys, concat_keys
from streamlake.index.keys.sequence_values import SequenceValues, concat_sequence_values

Array = np.ndarray[Any, Any]

SUPERSEDES = 1
"""The entry's row replaced everything that older runs say of its key."""
TOMBSTONE = 2
"""The key was deleted. Older runs no longer count for it, and the entry names no row."""
NULL_KEY = 4
"""The key is null, where hash and null flag are the whole key. Taken from `Keys.nulls`."""
NO_SEQUENCE = 8
"""The entry's sequence value is not known, although other entries of the run have one."""

LACKS_VALUES = 32
"""Only in a checkpoint's own entries: a value was left out, and the table had no
row of the key to take it from.
"""
TOOK_VALUES = 64
"""Only in a checkpoint's own entries: values were left out and taken from the key's row in the table."""
BY_ARRIVAL = 128
"""Only in a checkpoint's own entries: the sequence value is inherited from the key, because the
change is ordered by its arrival.
"""
GONE = ""
"""The path in place of a data file that is not live.

Entries that remain of such a file keep their sequence values and name no row.
"""

ENDS_SEARCH = SUPERSEDES | TOMBSTONE


@dataclass(frozen=True)
class RunFile:
    """A data file that entries refer to.

    `own`: the bucket's task wrote it, so all of its rows are of that bucket.
    """

    path: str
    own: bool


@dataclass(frozen=True, eq=False)
class Entries:
    """n entries, ascending by hash, in any order where hashes are equal. A key may have several entries.

    `files` (n,) int32 are ordinals into `paths`, `positions` are (n,) int64, `flags` (n,) uint8.
    `sequence_values` are n sequence values or None. `times` (n,) int64 epoch milliseconds or None: when
    tombstones were written; they mean nothing for other entries.
    """

    keys: Keys
    files: Array
    positions: Array
    flags: Array
    paths: tuple[RunFile, ...]
    sequence_values: SequenceValues | None = None
    times: Array | None = None

    def __len__(self) -> int:
        return len(self.files)

    def take(self, indices: Array) -> Entries:
        """The entries at `indices` (m,), in that order, which must keep hashes ascending."""
        return replace(
            self,
            keys=self.keys.take(indices),
            files=self.files[indices],
            positions=self.positions[indices],
            flags=self.flags[indices],
            sequence_values=None if self.sequence_values is None else self.sequence_values.take(indices),
            times=None if self.times is None else self.times[indices],
        )

    def slice(self, start: int, stop: int) -> Entries:
        """The entries start..stop-1, without a copy where that is possible."""
        part = np.s_[start:stop]
        keys = Keys(
            self.keys.hashes[part],
            None if self.keys.nulls is None else self.keys.nulls[part],
            None if self.keys.data is None else self.keys.data.slice(start, stop - start),
        )
        return replace(
            self,
            keys=keys,
            files=self.files[part],
            positions=self.positions[part],
            flags=self.flags[part],
            sequence_values=None
            if self.sequence_values is None
            else self.sequence_values.take(np.arange(start, stop)),
            times=None if self.times is None else self.times[part],
        )


def sort_entries(
    keys: Keys,
    files: Array,
    positions: Array,
    flags: Array,
    paths: Sequence[RunFile],
    *,
    sequence_values: SequenceValues | None = None,
    times: Array | None = None,
) -> Entries:
    """Entries of n rows given in any order. The arrays are as in `Entries`; NULL_KEY is set here."""
    flags = np.asarray(flags, dtype=np.uint8)
    if keys.nulls is not None:
        flags = (flags & ~np.uint8(NULL_KEY)) | np.where(keys.nulls, np.uint8(NULL_KEY), np.uint8(0))
    entries = Entries(
        keys,
        np.asarray(files, dtype=np.int32),
        np.asarray(positions, dtype=np.int64),
        flags,
        tuple(paths),
        sequence_values,
        None if times is None else np.asarray(times, dtype=np.int64),
    )
    hashes = keys.hashes
    if len(hashes) < 2 or bool((hashes[1:] >= hashes[:-1]).all()):
        return entries
    return entries.take(keys.order)


def concat_entries(parts: Sequence[Entries]) -> Entries:
    """The entries of several parts with the same `paths`, one after the other.

    They are in hash order already.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    sequence_values = [part.sequence_values for part in parts if part.sequence_values is not None]
    times = [part.times for part in parts if part.times is not None]
    return Entries(
        concat_keys([part.keys for part in parts]),
        np.concatenate([part.files for part in parts]),
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.flags for part in parts]),
        first.paths,
        concat_sequence_values(sequence_values) if sequence_values else None,
        np.concatenate(times) if times else None,
    )
