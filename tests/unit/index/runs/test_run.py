"""Runs come back as they were written, and a file that is anything else is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.runs import run_writer
from streamlake.index.runs.entries import NO_SEQUENCE, SUPERSEDES, TOMBSTONE, Entries, RunFile, sort_entries
from streamlake.index.runs.run import open_run, write_run
from streamlake.storage.local import LocalFileIO

IO = LocalFileIO()
PATHS = tuple(RunFile(f"/data/{n}.parquet", n % 2 == 0) for n in range(300))


def entries_of(count: int, *, data: bool, sequence_values: str, seed: int = 7) -> Entries:
    """Random entries with every feature that is asked for."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 2**64, count, dtype=np.uint64)
    hashes[: count // 5] = hashes[count // 5 : count // 5 * 2]
    strings = [rng.bytes(int(n)) for n in rng.integers(0, 40, count)]
    keys = Keys(
        hashes,
        None if data else rng.random(count) < 0.1,
        pa.array(strings, pa.large_binary()) if data else None,
    )
    values = {
        "none": None,
        "int64": SequenceValues(rng.integers(-(2**63), 2**63, count)),
        "bytes": SequenceValues(
            pa.array([rng.bytes(int(n)) for n in rng.integers(0, 9, count)], pa.large_binary())
        ),
    }[sequence_values]
    flags = rng.choice([0, SUPERSEDES, TOMBSTONE, NO_SEQUENCE | SUPERSEDES], count)
    return sort_entries(
        keys,
        rng.integers(0, len(PATHS), count),
        rng.choice([5, 70_000, 2**33], count) + rng.integers(0, 100, count),
        flags,
        PATHS,
        sequence_values=values,
        times=rng.integers(0, 2**41, count),
    )


def same_entries(a: Entries, b: Entries) -> bool:
    """Whether all that means anything is equal."""
    alive = a.flags & TOMBSTONE == 0
    assert (a.keys.data is None) == (b.keys.data is None)
    assert (a.sequence_values is None) == (b.sequence_values is None)
    return bool(
        len(a) == len(b)
        and a.keys.equal(b.keys).all()
        and (a.flags == b.flags).all()
        and (a.files == b.files)[alive].all()
        and (a.positions == b.positions)[alive].all()
        and (
            a.sequence_values is None
            or pa.array(a.sequence_values.values).equals(pa.array(b.sequence_values.values))
        )
        and (a.times is None or (a.times == b.times)[~alive].all())
        and a.paths == b.paths
    )


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("sequence_values", ["none", "int64", "bytes"])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_run_comes_back(tmp_path: Path, data: bool, sequence_values: str, count: int) -> None:
    entries = entries_of(count, data=data, sequence_values=sequence_values)
    ref = write_run(IO, str(tmp_path / "a.run"), entries, 3, 8)
    assert (ref.bucket, ref.buckets, ref.entries) == (3, 8, count)
    assert ref.bytes == (tmp_path / "a.run").stat().st_size
    assert ref.tombstones == np.count_nonzero(entries.flags & TOMBSTONE)
    run = open_run(IO, ref)
    assert len(run) == count
    assert run.paths == PATHS
    if count:
        (again,) = run.entries()
        assert same_entries(entries, again)


def test_a_run_of_many_blocks_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "BLOCK_ENTRIES", 70)
    entries = entries_of(1000, data=True, sequence_values="bytes")
    run = open_run(IO, write_run(IO, str(tmp_path / "a.run"), entries, 0, 1))
    assert len(run.blocks) == 15
    at = 0
    for part in run.entries():
        assert same_entries(entries.slice(at, at + len(part)), part)
        at += len(part)
    assert at == 1000
