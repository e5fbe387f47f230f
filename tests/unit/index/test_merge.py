"""A merged run answers as the runs that it was made of."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import IndexDamagedError
from streamlake.index import merge_input, run_writer
from streamlake.index.entries import SUPERSEDES, TOMBSTONE
from streamlake.index.lookup import KeyIndex
from streamlake.index.merge import merge_runs
from streamlake.index.run import Run, open_run
from streamlake.index.run_writer import RunWriter
from streamlake.storage.local import LocalFileIO
from tests.unit.index.models import CODECS, FILES, LIVE, RUNS, Codec, Row, answers

IO = LocalFileIO()
ALL_KEYS = [None, *range(9)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def merged(directory, runs, live, **options) -> Run:
    """The merged run; options as of merge_runs."""
    options.setdefault("is_oldest", False)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (run_writer, "BLOCK_ENTRIES", options.pop("block", 3)),
            (merge_input, "SLICE_ENTRIES", options.pop("slice_entries", 2)),
        ):
            patch.setattr(module, name, value)
        writer = RunWriter(IO, f"{directory}/{np.random.default_rng().integers(2**60)}.run", 0, 1)
        return open_run(IO, merge_runs(runs, live, writer, **options))


@settings(max_examples=150, deadline=None)
@given(
    codec=CODECS,
    runs=RUNS,
    live=LIVE,
    cut=st.integers(1, 4),
    block=st.integers(1, 5),
    slice_entries=st.integers(1, 8),
)
def test_lookups_are_equal_before_and_after(codec, runs, live, cut, block, slice_entries, directory):
    runs = [codec.entries(run) for run in runs]
    paths = {FILES[number] for number in live}
    before = answers(KeyIndex(runs, paths), codec, ALL_KEYS)
    newest, older = runs[:cut], runs[cut:]
    # A tombstone's guard outlives older runs only where tombstones are never dropped.
    for is_oldest in {False, not older}:
        one = merged(directory, newest, paths, is_oldest=is_oldest, block=block, slice_entries=slice_entries)
        assert answers(KeyIndex([one, *older], paths), codec, ALL_KEYS) == before
        again = merged(directory, [one, *older], paths, is_oldest=True)
        assert answers(KeyIndex([again], paths), codec, ALL_KEYS) == before
        assert all(file.path in paths for file in again.paths)
        assert len(again) <= sum(map(len, runs))


@settings(max_examples=100, deadline=None)
@given(codec=CODECS, runs=RUNS, live=LIVE, limit=st.integers(0, 9))
def test_of_old_tombstones_the_guards_are_forgotten(codec, runs, live, limit, directory):
    entries = [codec.entries(run) for run in runs]
    paths = {FILES[number] for number in live}
    one = merged(directory, entries, paths, is_oldest=True, drop_tombstones_before_ms=limit)
    without = [
        [replace(row, guard=None) if row.flags & TOMBSTONE and row.time < limit else row for row in run]
        for run in runs
    ]
    index = KeyIndex([codec.entries(run) for run in without], paths)
    assert answers(KeyIndex([one], paths), codec, ALL_KEYS) == answers(index, codec, ALL_KEYS)
    for part in one.entries():
        tombstones = part.flags & TOMBSTONE != 0
        assert codec.guards != "none" or not tombstones.any()
        assert part.times is None or (part.times[tombstones] >= limit).all()


@settings(max_examples=100, deadline=None)
@given(codec=CODECS, runs=RUNS, live=LIVE, cuts=st.lists(st.integers(1, 2**64 - 1), max_size=3))
def test_parts_of_the_hash_space_make_up_the_whole(codec, runs, live, cuts, directory):
    entries = [codec.entries(run) for run in runs]
    paths = {FILES[number] for number in live}
    before = answers(KeyIndex(entries, paths), codec, ALL_KEYS)
    bounds = [0, *sorted(set(cuts)), 2**64]
    parts = [
        merged(directory, entries, paths, is_oldest=True, hashes=(low, high - 1), keep_own=False)
        for low, high in itertools.pairwise(bounds)
    ]
    assert not any(file.own for part in parts for file in part.paths)
    # Bucket by bucket: whatever order the parts have, each key is in one of them.
    assert answers(KeyIndex(parts[::-1], paths), codec, ALL_KEYS) == before


def test_a_superseded_row_stays_hidden_when_the_file_of_its_successor_is_gone(directory):
    codec = Codec(data=False, guards="int64")
    oldest = codec.entries([Row(1, 0, 0, guard=1)])
    runs = [codec.entries([Row(2, 1, 0, guard=1)]), codec.entries([Row(1, 1, 0, SUPERSEDES, guard=5)])]
    one = merged(directory, runs, {FILES[0]})
    assert answers(KeyIndex([one, oldest], {FILES[0]}), codec, [1]) == [(set(), None)]
    assert len(merged(directory, [one], {FILES[0]}, is_oldest=True)) == 0


@pytest.mark.parametrize("ending", [Row(1, 1, 0, SUPERSEDES), Row(1, 0, 0, TOMBSTONE)])
def test_a_row_of_another_writer_hides_what_was_superseded_before_it(ending, directory):
    codec = Codec(data=True, guards="none")
    live = {FILES[0], FILES[2]}
    oldest = codec.entries([Row(1, 2, 0)])
    one = merged(directory, [codec.entries([Row(1, 0, 7)]), codec.entries([ending])], live)
    assert answers(KeyIndex([one, oldest], live), codec, [1]) == [({(FILES[0], 7)}, None)]


def test_what_no_lookup_finds_is_dropped(directory):
    codec = Codec(data=True, guards="none")
    runs = [codec.entries([Row(key, n, 0, SUPERSEDES) for key in range(10)]) for n in (1, 0)]
    one = merged(directory, runs, set(FILES[:2]))
    assert len(one) == 10
    gone = [codec.entries([Row(key, 0, 0, TOMBSTONE) for key in range(10)]), *runs]
    assert len(merged(directory, gone, set(FILES[:2]))) == 10
    assert len(merged(directory, gone, set(FILES[:2]), is_oldest=True)) == 0


def test_only_files_that_are_referred_to_remain(directory):
    codec = Codec(data=False, guards="none")
    runs = [
        codec.entries([Row(key, 3 + key % 2, 0, SUPERSEDES) for key in range(10)]),
        codec.entries([Row(key, key % 3, 0, SUPERSEDES) for key in range(11)]),
    ]
    one = merged(directory, runs, set(FILES))
    assert {file.path for file in one.paths} == {FILES[1], FILES[3], FILES[4]}
    assert {file.path: file.own for file in one.paths} == {FILES[1]: False, FILES[3]: False, FILES[4]: True}


def test_runs_of_different_kinds_leave_nothing_behind(directory):
    mixed = [Codec(data=data, guards="none").entries([Row(1, 0, 0)]) for data in (False, True)]
    writer = RunWriter(IO, f"{directory}/mixed.run", 0, 1)
    with pytest.raises(IndexDamagedError, match="different key or sequence columns"):
        merge_runs(mixed, set(), writer, is_oldest=True)
    assert not (directory / "mixed.run").exists()
