"""A merged run answers as the runs that it was made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake import clock
from streamlake.errors import IndexDamagedError
from streamlake.index.runs import merge_input, run_writer
from streamlake.index.runs.entries import GONE, SUPERSEDES, TOMBSTONE
from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.merge import merge_runs
from streamlake.index.runs.run import Run, open_run
from streamlake.index.runs.run_writer import RunWriter
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
    # A tombstone's sequence value outlives older runs only where tombstones are never dropped.
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
        [
            replace(row, sequence_value=None) if row.flags & TOMBSTONE and row.time < limit else row
            for row in run
        ]
        for run in runs
    ]
    index = KeyIndex([codec.entries(run) for run in without], paths)
    assert answers(KeyIndex([one], paths), codec, ALL_KEYS) == answers(index, codec, ALL_KEYS)
    for part in one.entries():
        tombstones = part.flags & TOMBSTONE != 0
        assert codec.sequence_values != "none" or not tombstones.any()
        assert part.times is None or (part.times[tombstones] >= limit).all()


def test_a_superseded_row_stays_hidden_when_the_file_of_its_successor_is_gone(directory):
    codec = Codec(data=False, sequence_values="int64")
    oldest = codec.entries([Row(1, 0, 0, sequence_value=1)])
    runs = [
        codec.entries([Row(2, 1, 0, sequence_value=1)]),
        codec.entries([Row(1, 1, 0, SUPERSEDES, sequence_value=5)]),
    ]
    one = merged(directory, runs, {FILES[0]})
    assert answers(KeyIndex([one, oldest], {FILES[0]}), codec, [1]) == [(set(), 5)]
    for left in (1, 0):
        one = merged(directory, [one], {FILES[0]}, is_oldest=True, drop_tombstones_before_ms=2**60)
        assert len(one) == left


@pytest.mark.parametrize("sequence_values", ["int64", "bytes"])
def test_a_row_that_another_writer_put_elsewhere_takes_over_its_guard(sequence_values, directory):
    codec = Codec(data=True, sequence_values=sequence_values)
    moved = codec.entries([Row(1, 1, 7), Row(2, 1, 8, sequence_value=9)])
    before = codec.entries(
        [Row(1, 0, 0, SUPERSEDES, sequence_value=5), Row(2, 0, 1, SUPERSEDES, sequence_value=3)]
    )
    one = merged(directory, [moved, before], {FILES[1]}, is_oldest=True, drop_tombstones_before_ms=2**60)
    assert answers(KeyIndex([one], {FILES[1]}), codec, [1, 2]) == [({(FILES[1], 7)}, 5), ({(FILES[1], 8)}, 9)]
    assert len(one) == 2
    assert [file.path for file in one.paths] == [FILES[1]]
    again = merged(directory, [codec.entries([Row(1, 2, 0)]), one], {FILES[2]}, is_oldest=True)
    assert answers(KeyIndex([again], {FILES[2]}), codec, [1, 2]) == [({(FILES[2], 0)}, 5), (set(), 9)]


def test_the_guard_of_a_row_that_another_writer_deleted_lives_as_long_as_a_tombstone(directory, monkeypatch):
    monkeypatch.setattr(clock, "now_ms", lambda: 100)
    codec = Codec(data=False, sequence_values="int64")
    rows = [codec.entries([Row(1, 0, 0, SUPERSEDES, sequence_value=5)])]
    for before, known in ((100, 5), (101, None)):
        one = merged(directory, rows, set(), is_oldest=True)
        assert one.ref.tombstones == 1
        again = merged(directory, [one], set(), is_oldest=True, drop_tombstones_before_ms=before)
        assert answers(KeyIndex([again], set()), codec, [1]) == [(set(), known)]


def test_the_guard_of_a_row_that_is_gone_hides_no_older_row(directory):
    codec = Codec(data=False, sequence_values="int64")
    older = codec.entries([Row(1, 0, 3, sequence_value=2)])
    one = merged(directory, [codec.entries([Row(1, 1, 0, sequence_value=5)]), codec.entries([])], {FILES[0]})
    assert [file.path for file in one.paths] == [GONE]
    assert answers(KeyIndex([one, older], {FILES[0]}), codec, [1]) == [({(FILES[0], 3)}, 5)]
    oldest = merged(directory, [one, older], {FILES[0]}, is_oldest=True)
    assert answers(KeyIndex([oldest], {FILES[0]}), codec, [1]) == [({(FILES[0], 3)}, 5)]
    assert len(oldest) == 1


@pytest.mark.parametrize("ending", [Row(1, 1, 0, SUPERSEDES), Row(1, 0, 0, TOMBSTONE)])
def test_a_row_of_another_writer_hides_what_was_superseded_before_it(ending, directory):
    codec = Codec(data=True, sequence_values="none")
    live = {FILES[0], FILES[2]}
    oldest = codec.entries([Row(1, 2, 0)])
    one = merged(directory, [codec.entries([Row(1, 0, 7)]), codec.entries([ending])], live)
    assert answers(KeyIndex([one, oldest], live), codec, [1]) == [({(FILES[0], 7)}, None)]


def test_what_no_lookup_finds_is_dropped(directory):
    codec = Codec(data=True, sequence_values="none")
    runs = [codec.entries([Row(key, n, 0, SUPERSEDES) for key in range(10)]) for n in (1, 0)]
    one = merged(directory, runs, set(FILES[:2]))
    assert len(one) == 10
    gone = [codec.entries([Row(key, 0, 0, TOMBSTONE) for key in range(10)]), *runs]
    assert len(merged(directory, gone, set(FILES[:2]))) == 10
    assert len(merged(directory, gone, set(FILES[:2]), is_oldest=True)) == 0


def test_only_files_that_are_referred_to_remain(directory):
    codec = Codec(data=False, sequence_values="none")
    runs = [
        codec.entries([Row(key, 3 + key % 2, 0, SUPERSEDES) for key in range(10)]),
        codec.entries([Row(key, key % 3, 0, SUPERSEDES) for key in range(11)]),
    ]
    one = merged(directory, runs, set(FILES))
    assert {file.path for file in one.paths} == {FILES[1], FILES[3], FILES[4]}
    assert {file.path: file.own for file in one.paths} == {FILES[1]: False, FILES[3]: False, FILES[4]: True}


def test_runs_of_different_kinds_leave_nothing_behind(directory):
    mixed = [Codec(data=data, sequence_values="none").entries([Row(1, 0, 0)]) for data in (False, True)]
    writer = RunWriter(IO, f"{directory}/mixed.run", 0, 1)
    with pytest.raises(IndexDamagedError, match="different key or sequence columns"):
        merge_runs(mixed, set(), writer, is_oldest=True)
    assert not (directory / "mixed.run").exists()
