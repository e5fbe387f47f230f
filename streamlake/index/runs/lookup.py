"""The look-up of keys: finds the live rows that the index knows of many keys at once.

A writer task looks keys up before it writes; the commit does so again when the table's head has moved. Runs
are searched from the newest to the oldest until an entry ends the search for its key. Invariant: the result
is exact under hash collisions, and the cost grows with the number of keys and the logarithm of the runs,
never with the runs themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import IndexDamagedError
from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceValues, concat_sequence_values, greatest_rows
from streamlake.index.runs.blocks import Block, block_of
from streamlake.index.runs.entries import ENDS_SEARCH, NO_SEQUENCE, NULL_KEY, TOMBSTONE, Entries, RunFile
from streamlake.index.runs.run import Run

Array = np.ndarray[Any, Any]

Live = Callable[[str], object] | Container[str]
"""Which data files are live in the table: a function of the path that returns true
or false, or the set of paths.
"""


@dataclass(frozen=True, eq=False)
class Found:
    """What the index knows of n keys: m live rows, in no order.

    Row i belongs to key `query[i]` and is at `positions[i]` of `paths[file[i]]`; it was found in run
    `run[i]` (0 = newest). `own[j]`: whether `paths[j]` was written by the task of this bucket. `exists`
    (n,) bool: the key has a live row.

    Where `sequence_known` (n,) bool is true, `sequence_values` has the greatest sequence value of the key's
    rows and tombstone. This includes rows whose file is gone: another writer may have moved them to other
    files, without their sequence values. Both are None when no run keeps sequence values.
    """

    query: Array
    run: Array
    file: Array
    positions: Array
    paths: tuple[str, ...]
    own: Array
    exists: Array
    sequence_values: SequenceValues | None = None
    sequence_known: Array | None = None

    def __len__(self) -> int:
        return len(self.query)

    def only(self, rows: Array) -> Found:
        """The rows in a mask. What is known of the keys otherwise does not change."""
        return replace(
            self,
            query=self.query[rows],
            run=self.run[rows],
            file=self.file[rows],
            positions=self.positions[rows],
        )


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """The runs of one bucket, newest first.

    Entries of data files that are not `live` count only for their sequence values.
    """

    runs: Sequence[Run | Entries]
    live: Live

    def lookup(self, keys: Keys) -> Found:
        """Where the rows of n keys are. A key may be given twice.

        Raises IndexDamagedError when the runs hold keys of another kind.
        """
        if not any(len(run) for run in self.runs):
            return self._found((), len(keys))
        search = _Search(keys, keys.order, keys.hashes[keys.order])
        hits: list[_Hits] = []
        for number, run in enumerate(self.runs):
            if not len(search.order):
                break
            stopped: Array = np.zeros(len(search.order), dtype=bool)
            for block in blocks_of(run):
                found = _search_block(search, block, number, self._files[number], stopped)
                block.release()
                if found is not None:
                    hits.append(found)
            search = search.without(stopped)
        return self._found(hits, len(keys))

    @cached_property
    def _files(self) -> list[_Files]:
        return [_Files(run.paths, self.live) for run in self.runs]

    def _found(self, hits: Sequence[_Hits], count: int) -> Found:
        query, run, file, positions = (
            np.concatenate([np.empty(0, dtype=dtype), *(getattr(part, name) for part in hits)])
            for name, dtype in (("query", "i8"), ("run", "i4"), ("file", "i4"), ("positions", "i8"))
        )
        names = _Names()
        for number, files in enumerate(self._files):
            mine = np.flatnonzero(run == number)
            file[mine] = names.of(files.paths, file[mine])
        once = _once(query, file, positions, count)
        query, run, file, positions = (array[once] for array in (query, run, file, positions))
        exists: Array = np.zeros(count, dtype=bool)
        exists[query] = True
        sequence_values, known = greatest_sequence_values(
            [(part.sequenced, part.sequence_values) for part in hits], count
        )
        own = np.array(names.own, dtype=bool)
        return Found(query, run, file, positions, tuple(names.numbers), own, exists, sequence_values, known)


class _Files:
    """The data files of a run. Whether one is live is checked when an entry that names it is first found."""

    def __init__(self, paths: Sequence[RunFile], live: Live) -> None:
        self.paths = paths
        self._test = live if callable(live) else live.__contains__
        self._state: Array = np.full(len(paths), -1, dtype=np.int8)

    def are_live(self, files: Array) -> Array:
        """(m,) bool for (m,) ordinals of files."""
        named = np.bincount(files, minlength=len(self.paths)) > 0
        for at in np.flatnonzero(named & (self._state < 0)).tolist():
            self._state[at] = bool(self._test(self.paths[at].path))
        return self._state[files] > 0


class _Names:
    """The paths of all files in which rows were found, numbered.

    `own` says whether each is own in every run that names it.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.own: list[bool] = []

    def of(self, paths: Sequence[RunFile], files: Array) -> Array:
        """The numbers of a run's files, by ordinal in the run: (m,) -> (m,) int32."""
        numbers: Array = np.zeros(len(paths), dtype=np.int32)
        for at in np.flatnonzero(np.bincount(files, minlength=len(paths))).tolist():
            number = self.numbers.setdefault(paths[at].path, len(self.own))
            if number == len(self.own):
                self.own.append(True)
            self.own[number] &= paths[at].own
            numbers[at] = number
        return numbers[files]


def blocks_of(run: Run | Entries) -> Sequence[Block]:
    """The blocks of a run, in hash order."""
    if isinstance(run, Run):
        return run.blocks
    block = block_of(run)
    return () if block is None else (block,)


def live_files(run: Run | Entries, live: Live) -> Array:
    """(len(run.paths),) bool: which data files of a run are live."""
    test = live if callable(live) else live.__contains__
    return np.fromiter((bool(test(file.path)) for file in run.paths), dtype=bool, count=len(run.paths))


def greatest_sequence_values(
    parts: Sequence[tuple[Array, SequenceValues | None]], count: int
) -> tuple[SequenceValues | None, Array | None]:
    """The greatest sequence value per group of 0..count-1, and which groups have one.

    The parts are pairs of (group, sequence values).
    """
    given = [(group, sequence_values) for group, sequence_values in parts if sequence_values is not None]
    if not given:
        return None, None
    group = np.concatenate([part for part, _ in given])
    sequence_values = concat_sequence_values([part for _, part in given])
    known: Array = np.zeros(count, dtype=bool)
    known[group] = True
    if sequence_values.is_numeric:
        greatest: Array = np.full(count, np.iinfo(np.int64).min, dtype=np.int64)
        np.maximum.at(greatest, group, sequence_values.values)
        greatest[~known] = 0
        return SequenceValues(greatest), known
    rows = greatest_rows(group, sequence_values, count)
    taken = sequence_values.values.take(pa.array(rows, mask=rows < 0))
    return SequenceValues(pc.fill_null(taken, pa.scalar(b"", pa.large_binary()))), known


@dataclass(frozen=True, eq=False)
class _Search:
    """The keys still to be found: their indices in `keys` and their hashes, ascending by hash."""

    keys: Keys
    order: Array
    hashes: Array

    def without(self, stopped: Array) -> _Search:
        if not stopped.any():
            return self
        rest = ~stopped
        return _Search(self.keys, self.order[rest], self.hashes[rest])


@dataclass(frozen=True, eq=False)
class _Hits:
    """Live rows found in one block, and the sequence values of keys there (`sequenced`: the key of each)."""

    query: Array
    run: Array
    file: Array
    positions: Array
    sequenced: Array
    sequence_values: SequenceValues | None


def _search_block(search: _Search, block: Block, run: int, files: _Files, stopped: Array) -> _Hits | None:
    """What a block knows of the keys. Sets `stopped` for those whose search ends here."""
    low = int(np.searchsorted(search.hashes, np.uint64(block.first)))
    high = int(np.searchsorted(search.hashes, np.uint64(block.last), side="right"))
    if low == high:
        return None
    asked, entry = equal_hashes(search.hashes[low:high], block.hashes)
    asked += low
    flags = block.flags[entry]
    same = _same_keys(search.keys, search.order[asked], block, entry, flags)
    if same is not None:
        asked, entry, flags = asked[same], entry[same], flags[same]
    if not len(asked):
        return None
    stopped[asked[flags & ENDS_SEARCH != 0]] = True
    query = search.order[asked]
    file, positions = block.places(entry)
    dead = flags & TOMBSTONE != 0
    lives = ~dead
    lives[lives] = files.are_live(file[lives])
    counts = _with_sequence_values(flags, lives)
    sequence_values = block.take_sequence_values(entry[counts])
    found = query[lives]
    return _Hits(
        found,
        np.full(len(found), run, dtype=np.int32),
        file[lives],
        positions[lives],
        query[counts],
        sequence_values,
    )


def _with_sequence_values(flags: Array, lives: Array) -> Array:
    """Which entries' sequence values count: those of live rows and of others.

    A row that another writer has moved to another file has no sequence value there, and for a key whose row
    that writer has deleted nothing else may be known.
    """
    result: Array = flags & NO_SEQUENCE == 0
    return result


def equal_hashes(asked: Array, hashes: Array) -> tuple[Array, Array]:
    """All pairs (i, j) with asked[i] == hashes[j], both ascending; i ascends."""
    left: Array = np.searchsorted(hashes, asked)
    last = len(hashes) - 1
    hit = np.flatnonzero((left <= last) & (hashes[np.minimum(left, last)] == asked))
    left = left[hit]
    more = (left < last) & (hashes[np.minimum(left + 1, last)] == asked[hit])
    if not more.any():
        return hit, left
    right = left + 1
    right[more] = np.searchsorted(hashes, asked[hit[more]], side="right")
    counts = right - left
    starts: Array = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return np.repeat(hit, counts), np.repeat(left, counts) + within


def _same_keys(keys: Keys, rows: Array, block: Block, entry: Array, flags: Array) -> Array | None:
    """Which candidates of equal hash are the same key; None: all of them."""
    if (keys.data is None) != (block.data is None):
        raise IndexDamagedError(
            "the key index was made for other key columns than the table has now; rebuild the index from "
            "the table"
        )
    if keys.data is not None:
        asked = keys.data.take(pa.array(rows))
        result: Array | None = pc.equal(asked, block.take_data(entry)).to_numpy(zero_copy_only=False)
        return result
    nulls = flags & NULL_KEY != 0
    if keys.nulls is None:
        return ~nulls if nulls.any() else None
    both_null: Array = nulls == keys.nulls[rows]
    return both_null


def _once(query: Array, file: Array, positions: Array, count: int) -> Array | slice:
    """Indices that keep each row of a key once, even if several runs know it."""
    hits = np.bincount(query, minlength=count)
    several = np.flatnonzero(hits[query] > 1)
    if not len(several):
        return slice(None)
    order = several[np.lexsort((positions[several], file[several], query[several]))]
    a, b = order[1:], order[:-1]
    again = (query[a] == query[b]) & (file[a] == file[b]) & (positions[a] == positions[b])
    keep: Array = np.ones(len(query), dtype=bool)
    keep[a[again]] = False
    return np.flatnonzero(keep)
