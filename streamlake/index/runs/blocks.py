"""Blocks: consecutive entries of a run as a set of flat arrays, in memory or mapped from a file.

`lookup` and `merge` work on blocks; a run is a list of blocks in hash order. Invariant: a mapped block copies
nothing until rows are taken from it, and `release` gives its pages back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.runs.entries import NULL_KEY, TOMBSTONE, Entries, RunFile

Array = np.ndarray[Any, Any]


def _nothing() -> None:
    return None


@dataclass(frozen=True, eq=False)
class Block:
    """n entries, ascending by hash; integer arrays of any width.

    `data` and `sequence_values` are as in `Keys` and `SequenceValues`, the byte strings with 32- or 64-bit
    offsets. `tombstones` are the ascending indices of the entries with that flag, and `times` their times
    (epoch milliseconds); both None when no times are kept. `files` and `positions` are those of the file that
    the block is in; `places` gives where the rows are now, which `moved` says.
    """

    first: int
    last: int
    hashes: Array
    files: Array
    positions: Array
    flags: Array
    data: pa.Array | None = None
    sequence_values: Any = None
    tombstones: Array | None = None
    times: Array | None = None
    release: Callable[[], None] = _nothing
    moved: Callable[[Array, Array], tuple[Array, Array]] | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def string_bytes(self) -> int:
        """Bytes of the keys and sequence values that are byte strings."""
        arrays = (self.data, self.sequence_values)
        return sum(array.nbytes for array in arrays if isinstance(array, pa.Array))

    def places(self, indices: Array | slice) -> tuple[Array, Array]:
        """Where the rows of the entries at `indices` are: ordinals of files (int32), positions (int64)."""
        files, positions = self.files[indices].astype(np.int32), self.positions[indices].astype(np.int64)
        return (files, positions) if self.moved is None else self.moved(files, positions)

    def take_data(self, indices: Array) -> pa.LargeBinaryArray | None:
        """The key bytes of the entries at `indices`."""
        return None if self.data is None else _take_bytes(self.data, indices)

    def take_sequence_values(self, indices: Array) -> SequenceValues | None:
        """The sequence values of the entries at `indices`."""
        if self.sequence_values is None:
            return None
        if isinstance(self.sequence_values, pa.Array):
            return SequenceValues(_take_bytes(self.sequence_values, indices))
        return SequenceValues(self.sequence_values[indices])

    def entries(self, start: int, stop: int, paths: tuple[RunFile, ...]) -> Entries:
        """A copy of the entries start..stop-1."""
        part, rows = np.s_[start:stop], np.arange(start, stop)
        flags = np.array(self.flags[part])
        nulls = flags & NULL_KEY != 0
        has_nulls = self.data is None and bool(nulls.any())
        keys = Keys(np.array(self.hashes[part]), nulls if has_nulls else None, self.take_data(rows))
        files, positions = self.places(part)
        return Entries(
            keys,
            files,
            positions,
            flags,
            paths,
            self.take_sequence_values(rows),
            self._times(start, stop),
        )

    def _times(self, start: int, stop: int) -> Array | None:
        if self.tombstones is None or self.times is None:
            return None
        times: Array = np.zeros(stop - start, dtype=np.int64)
        low, high = (int(np.searchsorted(self.tombstones, at)) for at in (start, stop))
        times[self.tombstones[low:high] - start] = self.times[low:high]
        return times


def block_of(entries: Entries) -> Block | None:
    """The block that shares the arrays of `entries`; None when there are none."""
    if not len(entries):
        return None
    hashes = entries.keys.hashes
    flags = entries.flags
    if entries.keys.nulls is not None:
        flags = flags & np.uint8(0xFF - NULL_KEY) | entries.keys.nulls * np.uint8(NULL_KEY)
    tombstones = None if entries.times is None else np.flatnonzero(flags & TOMBSTONE)
    return Block(
        int(hashes[0]),
        int(hashes[-1]),
        hashes,
        entries.files,
        entries.positions,
        flags,
        entries.keys.data,
        None if entries.sequence_values is None else entries.sequence_values.values,
        tombstones,
        None if entries.times is None else entries.times[tombstones],
    )


def _take_bytes(strings: pa.Array, indices: Array) -> pa.LargeBinaryArray:
    return strings.take(pa.array(indices)).cast(pa.large_binary())
