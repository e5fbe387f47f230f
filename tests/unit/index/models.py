"""A key index as lists and dicts, and random runs for it; what the tests of lookup and merge compare with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from streamlake.index.keys.guards import Guards
from streamlake.index.keys.keys import Keys
from streamlake.index.runs.entries import NO_GUARD, SUPERSEDES, TOMBSTONE, Entries, RunFile, sort_entries
from streamlake.index.runs.lookup import KeyIndex

FILES = tuple(f"/data/{n}.parquet" for n in range(6))


@dataclass(frozen=True)
class Row:
    """One entry. `key` None is the null key; `guard` None: not known."""

    key: int | None
    file: int
    position: int
    flags: int = 0
    guard: int | None = None
    time: int = 0


@dataclass(frozen=True)
class Codec:
    """How the model's keys and guards are encoded: with bytes, or the hash as the key; guards as none, int64, bytes.

    `spread` is the number of different hashes where keys have bytes, so a small one forces collisions.
    """

    data: bool
    guards: str
    spread: int = 2**64

    def keys(self, keys: list[int | None]) -> Keys:
        hashes = np.array([self.hash(key) for key in keys], dtype=np.uint64)
        if self.data:
            strings = [b"" if key is None else str(key).encode() for key in keys]
            return Keys(hashes, data=pa.array(strings, pa.large_binary()))
        nulls = np.array([key is None for key in keys], dtype=bool)
        return Keys(hashes, nulls if nulls.any() else None)

    def hash(self, key: int | None) -> int:
        if key is None:
            return 42 % self.spread
        # Key 7 hashes like null.
        mixed = 42 if key == 7 else (key + 1) * 0x9E3779B97F4A7C15 % 2**64
        return mixed % self.spread if self.data else mixed

    def encoded_guards(self, guards: list[int | None]) -> Guards | None:
        if self.guards == "none":
            return None
        if self.guards == "int64":
            return Guards(np.array([guard or 0 for guard in guards], dtype=np.int64))
        return Guards(pa.array([b"%03d" % (guard or 0) for guard in guards], pa.large_binary()))

    def decoded_guards(self, guards: Guards | None, known) -> list[int | None]:
        if guards is None:
            return [None] * 1000
        values = (
            guards.values.tolist()
            if guards.is_numeric
            else [int(v or b"0") for v in guards.values.to_pylist()]
        )
        return [value if is_known else None for value, is_known in zip(values, known.tolist(), strict=True)]

    def entries(self, rows: list[Row]) -> Entries:
        no_guard = [NO_GUARD if self.guards != "none" and row.guard is None else 0 for row in rows]
        return sort_entries(
            self.keys([row.key for row in rows]),
            np.array([-1 if row.flags & TOMBSTONE else row.file for row in rows], dtype=np.int32),
            np.array([row.position for row in rows], dtype=np.int64),
            np.array([row.flags for row in rows], dtype=np.uint8) | np.array(no_guard, dtype=np.uint8),
            [RunFile(path, number % 2 == 0) for number, path in enumerate(FILES)],
            guards=self.encoded_guards([row.guard for row in rows]),
            times=np.array([row.time for row in rows], dtype=np.int64),
        )


CODECS = st.builds(
    Codec,
    data=st.booleans(),
    guards=st.sampled_from(["none", "int64", "bytes"]),
    spread=st.sampled_from([1, 4, 2**64]),
)
KEYS = st.sampled_from([None, 0, 1, 2, 3, 7])
ROWS = st.builds(
    Row,
    key=KEYS,
    file=st.integers(0, len(FILES) - 1),
    position=st.integers(0, 3),
    flags=st.sampled_from([0, 0, SUPERSEDES, SUPERSEDES, TOMBSTONE]),
    guard=st.one_of(st.none(), st.integers(0, 9), st.integers(0, 9)),
    time=st.integers(0, 9),
)
RUNS = st.lists(st.lists(ROWS, max_size=14), max_size=6)
LIVE = st.sets(st.sampled_from(range(len(FILES))))


def expected(runs: list[list[Row]], live: set[int], key: int | None, guards: str):
    """The (file, position) pairs of the live rows of a key, and its greatest guard, those of rows that are gone included."""
    rows: set[tuple[str, int]] = set()
    found: list[int] = []
    for run in runs:
        mine = [row for row in run if row.key == key]
        for row in mine:
            is_row = not row.flags & TOMBSTONE and row.file in live
            if is_row:
                rows.add((FILES[row.file], row.position))
            if row.guard is not None and guards != "none":
                found.append(row.guard)
        if any(row.flags & (SUPERSEDES | TOMBSTONE) for row in mine):
            break
    return rows, max(found, default=None)


def answers(index: KeyIndex, codec: Codec, keys: list[int | None]):
    """What the index says of each key, in the form of `expected`."""
    found = index.lookup(codec.keys(keys))
    rows: list[list[tuple[str, int]]] = [[] for _ in keys]
    for query, file, position in zip(found.query, found.file, found.positions, strict=True):
        rows[query].append((found.paths[file], int(position)))
    assert all(len(set(part)) == len(part) for part in rows)
    assert found.exists.tolist() == [bool(part) for part in rows]
    assert sorted(set(found.file.tolist())) == list(range(len(found.paths)))
    guards = codec.decoded_guards(found.guards, found.guard_known)
    return [(set(part), guards[at]) for at, part in enumerate(rows)]
