"""The input of a merge: the entries of several runs, gathered slice by slice of the hash space.

Invariant: a slice has all entries of its hashes, those of newer runs first, and about as many as `merge` can
hold. File ordinals are those of the result, -1 for tombstones and for files that are not live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import IndexDamagedError
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.runs.blocks import Block
from streamlake.index.runs.entries import GONE, NO_SEQUENCE, TOMBSTONE, Entries, RunFile, concat_entries
from streamlake.index.runs.lookup import Live, blocks_of, live_files
from streamlake.index.runs.run import Run

Array = np.ndarray[Any, Any]

HIGHEST_HASH = 2**64 - 1
SLICE_ENTRIES = 1 << 17
SLICE_BYTES = 16 * 1024 * 1024
"""Bytes of keys and sequence values after which a slice of fewer entries ends, estimated by the average."""


@dataclass(frozen=True, eq=False)
class Slice:
    """Entries of a range of hashes, not sorted.

    `rank` (n,) int32, ascending, is the run of each entry, 0 = newest. `gone`
    is the ordinal of the file GONE.
    """

    entries: Entries
    rank: Array
    gone: int


class MergeInput:
    """Reads `runs`, given newest first, in slices.

    `paths` are the live data files that they refer to, none of them `own` unless `keep_own`, and GONE. Raises
    IndexDamagedError when keys or sequence values are of different kinds.
    """

    def __init__(self, runs: Sequence[Run | Entries], live: Live, *, keep_own: bool) -> None:
        numbers: dict[str, int] = {}
        own: list[bool] = []
        of_runs = []
        for run in runs:
            ordinals: Array = np.full(len(run.paths) + 1, -1, dtype=np.int32)
            for at in np.flatnonzero(live_files(run, live)).tolist():
                file = run.paths[at]
                number = numbers.setdefault(file.path, len(own))
                if number == len(own):
                    own.append(keep_own)
                own[number] &= file.own
                ordinals[at] = number
            of_runs.append(ordinals)
        named = (RunFile(path, own[number]) for path, number in numbers.items())
        self.paths = (*named, RunFile(GONE, own=False))
        self._sources = [
            _Source(blocks_of(run), ordinals, self.paths) for run, ordinals in zip(runs, of_runs, strict=True)
        ]
        self._sequence_values = _sequence_kind(self._sources)

    def slices(self) -> Iterator[Slice]:
        """The slices in hash order; none is empty."""
        at = [0] * len(self._sources)
        width = sum(source.entry_bytes for source in self._sources) / max(len(self._sources), 1)
        most = max(int(min(SLICE_ENTRIES, SLICE_BYTES / max(width, 1))), 1)
        while total := sum(source.stop - start for source, start in zip(self._sources, at, strict=True)):
            bound = HIGHEST_HASH
            for source, start in zip(self._sources, at, strict=True):
                share = most * (source.stop - start) / total
                last = start + int(share + 2 * share**0.5) + 16
                if last < source.stop:
                    bound = min(bound, source.hash_at(last))
            parts = []
            for rank, source in enumerate(self._sources):
                end = source.end_of(bound, at[rank])
                if end > at[rank]:
                    parts.append((rank, self._uniform(source.entries(at[rank], end))))
                at[rank] = end
            yield Slice(
                concat_entries([part for _, part in parts]),
                np.concatenate([np.full(len(part), rank, dtype=np.int32) for rank, part in parts]),
                len(self.paths) - 1,
            )

    def _uniform(self, entries: Entries) -> Entries:
        """The entries with sequence values and times where any run has these, else without times."""
        if self._sequence_values is None:
            return replace(entries, times=None)
        if entries.sequence_values is None:
            values: Array = np.zeros(len(entries), dtype=np.int64)
            empty = (
                SequenceValues(values)
                if self._sequence_values == "int64"
                else SequenceValues(_empty_strings(len(entries)))
            )
            entries = replace(entries, sequence_values=empty, flags=entries.flags | np.uint8(NO_SEQUENCE))
        if entries.times is None:
            entries = replace(entries, times=np.zeros(len(entries), dtype=np.int64))
        return entries


class _Source:
    """The blocks of one run as one range of `stop` entries."""

    def __init__(self, blocks: Sequence[Block], ordinals: Array, paths: tuple[RunFile, ...]) -> None:
        self.blocks = blocks
        self._ordinals = ordinals
        self._paths = paths
        self._starts = np.cumsum([0, *map(len, blocks)]).tolist()
        self._lasts = np.array([block.last for block in blocks], dtype=np.uint64)
        self.stop = int(self._starts[-1])
        strings = sum(block.string_bytes for block in blocks)
        self.entry_bytes = strings / max(self._starts[-1], 1)

    def hash_at(self, index: int) -> int:
        """The hash of one entry."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return int(self.blocks[number].hashes[index - self._starts[number]])

    def end_of(self, bound: int, start: int) -> int:
        """How many entries of the run have a hash up to `bound`; at least `start`."""
        number = int(np.searchsorted(self._lasts, np.uint64(bound), side="right"))
        if number == len(self.blocks):
            return int(self._starts[-1])
        within = np.searchsorted(self.blocks[number].hashes, np.uint64(bound), side="right")
        return max(int(self._starts[number] + within), start)

    def entries(self, start: int, stop: int) -> Entries:
        """The entries start..stop-1, at least one."""
        parts = []
        for number, block in enumerate(self.blocks):
            low, high = max(start, self._starts[number]), min(stop, self._starts[number + 1])
            if low < high:
                offset = self._starts[number]
                parts.append(block.entries(low - offset, high - offset, self._paths))
                block.release()
        entries = concat_entries(parts)
        files = np.where(entries.flags & TOMBSTONE != 0, -1, entries.files)
        return replace(entries, files=self._ordinals[files])


def _sequence_kind(sources: Sequence[_Source]) -> str | None:
    blocks = [block for source in sources for block in source.blocks]
    sequence_values = {
        "bytes" if isinstance(block.sequence_values, pa.Array) else "int64"
        for block in blocks
        if block.sequence_values is not None
    }
    if len(sequence_values) > 1 or len({block.data is None for block in blocks}) > 1:
        raise IndexDamagedError(
            "the runs of the key index were made for different key or sequence columns; rebuild the index "
            "from the table"
        )
    return sequence_values.pop() if sequence_values else None


def _empty_strings(count: int) -> pa.LargeBinaryArray:
    return pa.array([b""], pa.large_binary()).take(pa.array(np.zeros(count, dtype=np.int64)))
