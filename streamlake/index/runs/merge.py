"""The merge of runs: makes one run of several, which gives the same look-up results.

Entries that no look-up can find are left out. Writer tasks merge from time to time, so that look-ups search
few runs. The merge works in slices of the hash space. Invariant: memory is bounded by the slice, and a
look-up finds the same rows and sequence values before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from streamlake import clock
from streamlake.index.keys.sequence_values import greatest_rows
from streamlake.index.runs.entries import (
    ENDS_SEARCH,
    NO_SEQUENCE,
    NULL_KEY,
    SUPERSEDES,
    TOMBSTONE,
    Entries,
    RunFile,
    concat_entries,
)
from streamlake.index.runs.lookup import Live
from streamlake.index.runs.merge_input import SLICE_ENTRIES, MergeInput, Slice
from streamlake.index.runs.run import Run
from streamlake.index.runs.run_writer import RunRef, RunWriter

Array = np.ndarray[Any, Any]

_NEVER = np.iinfo(np.int32).max


def merge_runs(
    runs: Sequence[Run | Entries],
    live: Live,
    writer: RunWriter,
    *,
    is_oldest: bool,
    drop_tombstones_before_ms: int | None = None,
    now_ms: int | None = None,
) -> RunRef:
    """Merge `runs`, newest first, into the run that `writer` writes, and close it.

    Entries that are superseded or whose data file is not `live` are left out. If such an entry has the
    greatest sequence value of its key, the key's newest row takes it over; without a row, it is kept from now
    on as a tombstone is. `is_oldest`: no older run of the bucket remains.

    A tombstone is kept while an older run remains. Where sequence values are kept, it is also kept until it
    is older than `drop_tombstones_before_ms` (epoch milliseconds; None: for ever). `now_ms` is the time of
    new tombstones (None: the clock's). Raises what the writer raises, and IndexDamagedError when the runs are
    of different kinds; then no file is left behind.
    """
    rule = _Rule(is_oldest, drop_tombstones_before_ms, clock.now_ms() if now_ms is None else now_ms)
    sink: _Sink | None = None
    try:
        merged = MergeInput(runs, live, keep_own=True)
        sink = _Sink(writer, merged.paths)
        for part in merged.slices():
            sink.add(rule.kept(part))
        sink.flush()
    except BaseException:
        writer.abort()
        raise
    return writer.close(sink.paths)


def split_runs(
    runs: Sequence[Run | Entries],
    live: Live,
    split: Callable[[Entries], Sequence[Entries]],
    new_writer: Callable[[int], RunWriter],
    *,
    drop_tombstones_before_ms: int | None = None,
    now_ms: int | None = None,
) -> list[RunRef]:
    """Merge all runs of an index, newest first, into one run for each part that `split` makes of entries.

    No file is `own` in the new runs: its rows are now spread over the parts. `new_writer` gives the writer of
    part i; a part without entries gets no run. Other arguments and errors are as for `merge_runs`.
    """
    rule = _Rule(True, drop_tombstones_before_ms, clock.now_ms() if now_ms is None else now_ms)
    sinks: dict[int, _Sink] = {}
    try:
        merged = MergeInput(runs, live, keep_own=False)
        for slice_ in merged.slices():
            for number, part in enumerate(split(rule.kept(slice_))):
                if len(part):
                    if number not in sinks:
                        sinks[number] = _Sink(new_writer(number), merged.paths)
                    sinks[number].add(part)
        for sink in sinks.values():
            sink.flush()
    except BaseException:
        for sink in sinks.values():
            sink.writer.abort()
        raise
    return [sinks[number].writer.close(sinks[number].paths) for number in sorted(sinks)]


def merged_entries(runs: Sequence[Run | Entries], live: Live, now_ms: int) -> Entries | None:
    """The merge of all `runs`, newest first, in memory and in hash order; None when nothing remains.

    Arguments and errors are as for `merge_runs`.
    """
    rule = _Rule(True, None, now_ms)
    kept = [rule.kept(part) for part in MergeInput(runs, live, keep_own=False).slices()]
    parts = [part for part in kept if len(part)]
    return concat_entries(parts) if parts else None


class _Sink:
    """A run that is being written, slice by slice."""

    def __init__(self, writer: RunWriter, paths: Sequence[RunFile]) -> None:
        self.writer = writer
        self._used = _UsedFiles(paths)
        self._pending: list[Entries] = []
        self._count = 0

    @property
    def paths(self) -> tuple[RunFile, ...]:
        """The files of what was written."""
        return self._used.paths

    def add(self, entries: Entries) -> None:
        """Take the next entries in hash order."""
        self._pending.append(self._used.renumbered(entries))
        self._count += len(entries)
        if self._count >= SLICE_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self._pending:
            self.writer.append(concat_entries(self._pending))
        self._pending, self._count = [], 0


class _UsedFiles:
    """Gives new ordinals, in the order of first use, to the data files that the result refers to."""

    def __init__(self, paths: Sequence[RunFile]) -> None:
        self._all = paths
        self._used: list[int] = []
        self._numbers: Array = np.full(len(paths) + 1, -1, dtype=np.int32)

    @property
    def paths(self) -> tuple[RunFile, ...]:
        """The files in the order of their new ordinals."""
        return tuple(self._all[at] for at in self._used)

    def renumbered(self, entries: Entries) -> Entries:
        """The entries with the new ordinals of their files, -1 for tombstones."""
        files = np.where(entries.flags & TOMBSTONE != 0, -1, entries.files)
        counts = np.bincount(files + 1, minlength=len(self._all) + 1)[1:]
        fresh = np.flatnonzero((counts > 0) & (self._numbers[:-1] < 0))
        self._numbers[fresh] = np.arange(len(self._used), len(self._used) + len(fresh))
        self._used.extend(fresh.tolist())
        return replace(entries, files=self._numbers[files])


@dataclass(frozen=True)
class _Rule:
    """Decides which entries of a slice remain, and with which flags."""

    is_oldest: bool
    before_ms: int | None
    now_ms: int

    def kept(self, part: Slice) -> Entries:
        """The entries that remain, in hash order."""
        entries = part.entries
        order, starts = key_groups(part)
        rank, flags = part.rank[order], entries.flags[order]
        group = np.cumsum(starts) - 1
        groups = int(group[-1]) + 1

        # Going backwards, the first entry of a key that ends the search is assigned last.
        ends = np.flatnonzero(flags & ENDS_SEARCH)[::-1]
        end: Array = np.full(groups, -1, dtype=np.int64)
        end[group[ends]] = ends
        end_rank = np.where(end < 0, _NEVER, rank[end])
        reached = rank <= end_rank[group]
        rows = reached & (entries.files[order] >= 0)
        has_row: Array = np.zeros(groups, dtype=bool)
        has_row[group[rows]] = True
        tombstones = reached & (flags & TOMBSTONE != 0)
        keep = rows | (tombstones & self._is_remembered(entries, order, flags))

        taken = _taken_over(entries, order, flags, group, keep, reached & ~rows & ~tombstones)
        flags[taken.rows] &= np.uint8(0xFF - NO_SEQUENCE)
        flags[rows & (end >= 0)[group]] |= SUPERSEDES
        buried = taken.alone & (self.is_oldest | (end >= 0)[group])
        flags[taken.alone] &= np.uint8(NULL_KEY)
        flags[buried] |= np.uint8(TOMBSTONE)
        keep |= taken.alone
        if not self.is_oldest:
            bare = (end >= 0) & ~has_row
            keep |= tombstones & bare[group]
            bare[group[tombstones | buried]] = False
            # The entry that ended the search was a row of a file that is gone. Older rows must stay hidden.
            barriers = end[bare]
            flags[barriers] = flags[barriers] & NULL_KEY | TOMBSTONE | NO_SEQUENCE
            keep[barriers] = True
        kept = np.flatnonzero(keep)
        result = replace(entries.take(order[kept]), flags=flags[kept])
        if (
            entries.sequence_values is None
            or entries.times is None
            or not (taken.alone.any() or len(taken.rows))
        ):
            return result
        assert result.times is not None
        return replace(
            result,
            files=np.where((taken.alone & ~buried)[kept], np.int32(part.gone), result.files),
            sequence_values=entries.sequence_values.take(order[taken.sequence_of[kept]]),
            times=np.where(buried[kept], self.now_ms, result.times),
        )

    def _is_remembered(self, entries: Entries, order: Array, flags: Array) -> Array:
        """Which entries would be kept as tombstones for their sequence value."""
        if entries.sequence_values is None or entries.times is None:
            return np.zeros(len(order), dtype=bool)
        sequenced = flags & NO_SEQUENCE == 0
        result: Array = (
            sequenced if self.before_ms is None else sequenced & (entries.times[order] >= self.before_ms)
        )
        return result


@dataclass(frozen=True, eq=False)
class _TakenOver:
    """Which sequence values n entries take over from others.

    The kept `rows` (m,) get the sequence value of another entry. `sequence_of` (n,) is the place of each
    entry's sequence value: that other entry for these rows, the entry itself elsewhere. `alone` (n,) bool:
    nothing else is left of the key.
    """

    rows: Array
    sequence_of: Array
    alone: Array


def _taken_over(
    entries: Entries, order: Array, flags: Array, group: Array, keep: Array, gone: Array
) -> _TakenOver:
    """Which entries take over the sequence values of the entries in `gone`, (n,) bool.

    Only the sequence values that are the greatest of their keys are taken over.
    """
    sequence_of = np.arange(len(order))
    alone: Array = np.zeros(len(order), dtype=bool)
    known = flags & NO_SEQUENCE == 0
    gone = gone & known
    if entries.sequence_values is None or not gone.any():
        return _TakenOver(np.zeros(0, dtype=np.int64), sequence_of, alone)
    concerned: Array = np.zeros(int(group[-1]) + 1, dtype=bool)
    concerned[group[gone]] = True
    rated = np.flatnonzero((keep & known & concerned[group]) | gone)
    best = greatest_rows(group[rated], entries.sequence_values.take(order[rated]), len(concerned))
    best = rated[best[best >= 0]]
    best = best[gone[best]]
    rows = np.flatnonzero(keep & (flags & TOMBSTONE == 0))[::-1]
    newest: Array = np.full(len(concerned), -1, dtype=np.int64)
    newest[group[rows]] = rows
    to = newest[group[best]]
    alone[best[to < 0]] = True
    sequence_of[to[to >= 0]] = best[to >= 0]
    return _TakenOver(to[to >= 0], sequence_of, alone)


def key_groups(part: Slice) -> tuple[Array, Array]:
    """The order of a slice by hash, key and rank, and where in that order each key starts."""
    keys = part.entries.keys
    order = np.argsort(keys.hashes, kind="stable")
    hashes = keys.hashes[order]
    starts: Array = np.ones(len(order), dtype=bool)
    np.not_equal(hashes[1:], hashes[:-1], out=starts[1:])
    shared = ~starts
    shared[:-1] |= shared[1:]
    at = np.flatnonzero(shared)
    if not len(at):
        return order, starts
    several = keys.take(order[at])
    same = several.take(np.arange(1, len(at))).equal(several.take(np.arange(len(at) - 1)))
    if (same | starts[at[1:]]).all():
        return order, starts
    if several.data is not None:
        code = pc.dictionary_encode(several.data).indices.to_numpy()
    else:
        code = np.asarray(several.nulls, dtype=np.int32)
    within = np.lexsort((part.rank[order[at]], code, several.hashes))
    order[at] = order[at][within]
    code = code[within]
    starts[at[1:]] |= code[1:] != code[:-1]
    return order, starts
