"""A key index as lists and dicts, and random runs for it; what the tests of lookup and merge compare with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.runs.entries import NO_SEQUENCE, SUPERSEDES, TOMBSTONE, Entries, RunFile, sort_entries
from streamlake.index.runs.lookup import KeyIndex

FILES = tuple(f"/data/{n}.parquet" for n in range(6))


@dataclass(frozen=True)
class Row:
    """One entry. `key` None is the null key; `sequence_value` None: not known."""

    key: int | None
    file: int
    position: int
    flags: int = 0
    sequence_value: int | None = None
    time: int = 0


@dataclass(frozen=True)
class Codec:
    """How the model's keys and sequence values are encoded: with bytes, or the hash as the key; values as none, int64, bytes.

    `spread` is the number of different hashes where keys have bytes, so a small one forces collisions.
    """

    data: bool
    sequence_values: str
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

    def encoded_guards(self, sequence_values: list[int | None]) -> SequenceValues | None:
        if self.sequence_values == "none":
            return None
        if self.sequence_values == "int64":
            return SequenceValues(
                np.array([sequence_value or 0 for sequence_value in sequence_values], dtype=np.int64)
            )
        return SequenceValues(
            pa.array(
                [b"%03d" % (sequence_value or 0) for sequence_value in sequence_values], pa.large_binary()
            )
        )

    def decoded_guards(self, sequence_values: SequenceValues | None, known) -> list[int | None]:
        if sequence_values is None:
            return [None] * 1000
        values = (
            sequence_values.values.tolist()
            if sequence_values.is_numeric
            else [int(v or b"0") for v in sequence_values.values.to_pylist()]
        )
        return [value if is_known else None for value, is_known in zip(values, known.tolist(), strict=True)]

    def entries(self, rows: list[Row]) -> Entries:
        no_guard = [
            NO_SEQUENCE if self.sequence_values != "none" and row.sequence_value is None else 0
            for row in rows
        ]
        return sort_entries(
            self.keys([row.key for row in rows]),
            np.array([-1 if row.flags & TOMBSTONE else row.file for row in rows], dtype=np.int32),
            np.array([row.position for row in rows], dtype=np.int64),
            np.array([row.flags for row in rows], dtype=np.uint8) | np.array(no_guard, dtype=np.uint8),
            [RunFile(path, number % 2 == 0) for number, path in enumerate(FILES)],
            sequence_values=self.encoded_guards([row.sequence_value for row in rows]),
            times=np.array([row.time for row in rows], dtype=np.int64),
        )


CODECS = st.builds(
    Codec,
    data=st.booleans(),
    sequence_values=st.sampled_from(["none", "int64", "bytes"]),
    spread=st.sampled_from([1, 4, 2**64]),
)
KEYS = st.sampled_from([None, 0, 1, 2, 3, 7])
ROWS = st.builds(
    Row,
    key=KEYS,
    file=st.integers(0, len(FILES) - 1),
    position=st.integers(0, 3),
    flags=st.sampled_from([0, 0, SUPERSEDES, SUPERSEDES, TOMBSTONE]),
    sequence_value=st.one_of(st.none(), st.integers(0, 9), st.integers(0, 9)),
    time=st.integers(0, 9),
)
RUNS = st.lists(st.lists(ROWS, max_size=14), max_size=6)
LIVE = st.sets(st.sampled_from(range(len(FILES))))


def expected(runs: list[list[Row]], live: set[int], key: int | None, sequence_values: str):
    """The (file, position) pairs of the live rows of a key, and its greatest sequence value, those of rows that are gone included."""
    rows: set[tuple[str, int]] = set()
    found: list[int] = []
    for run in runs:
        mine = [row for row in run if row.key == key]
        for row in mine:
            is_row = not row.flags & TOMBSTONE and row.file in live
            if is_row:
                rows.add((FILES[row.file], row.position))
            if row.sequence_value is not None and sequence_values != "none":
                found.append(row.sequence_value)
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
    sequence_values = codec.decoded_guards(found.sequence_values, found.sequence_known)
    return [(set(part), sequence_values[at]) for at, part in enumerate(rows)]
