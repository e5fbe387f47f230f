"""Lookup against a model, with null keys, collisions, duplicates, tombstones and dead files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import IndexDamagedError
from streamlake.index.keys.keys import Keys
from streamlake.index.runs import run_writer
from streamlake.index.runs.entries import SUPERSEDES, TOMBSTONE
from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.run import open_run, write_run
from streamlake.storage.local import LocalFileIO
from tests.unit.index.models import CODECS, FILES, KEYS, LIVE, RUNS, Codec, Row, answers, expected

IO = LocalFileIO()


@settings(max_examples=200, deadline=None)
@given(
    codec=CODECS,
    runs=RUNS,
    live=LIVE,
    keys=st.lists(KEYS, max_size=12),
    block=st.integers(1, 5),
    mapped=st.booleans(),
)
def test_lookup_is_the_model(codec, runs, live, keys, block, mapped, tmp_path_factory):
    entries = [codec.entries(run) for run in runs]
    paths = {FILES[number] for number in live}
    if mapped:
        directory = tmp_path_factory.mktemp("runs")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_writer, "BLOCK_ENTRIES", block)
            refs = [write_run(IO, f"{directory}/{n}", part, 0, 1) for n, part in enumerate(entries)]
        entries = [open_run(IO, ref) for ref in refs]
    index = KeyIndex(entries, paths)
    assert answers(index, codec, keys) == [expected(runs, live, key, codec.sequence_values) for key in keys]
    by_function = KeyIndex(entries, lambda path: path in paths)
    assert answers(by_function, codec, keys) == answers(index, codec, keys)


def test_no_runs_know_nothing():
    found = KeyIndex([], set()).lookup(Codec(data=False, sequence_values="none").keys([1, None]))
    assert len(found) == 0
    assert found.exists.tolist() == [False, False]
    assert found.sequence_values is None


@pytest.mark.parametrize(("kept", "asked"), [(None, 7), (7, None), (None, None), (7, 7)])
def test_null_is_not_the_value_of_the_same_hash(kept, asked):
    codec = Codec(data=False, sequence_values="none")
    found = KeyIndex([codec.entries([Row(kept, 0, 5)])], set(FILES)).lookup(codec.keys([asked]))
    assert found.positions.tolist() == ([5] if kept == asked else [])


def test_only_files_of_entries_that_are_found_are_asked_for():
    codec = Codec(data=False, sequence_values="none")
    asked = []
    entries = codec.entries([Row(key, key % 6, key) for key in range(60)])
    index = KeyIndex([entries], lambda path: asked.append(path) or True)
    for _ in range(2):
        assert len(index.lookup(codec.keys([6, 12, 9]))) == 3
    assert sorted(asked) == [FILES[0], FILES[3]]


def test_own_files_and_runs_are_told():
    codec = Codec(data=False, sequence_values="none")
    newer = codec.entries([Row(1, 0, 5), Row(2, 1, 6, SUPERSEDES), Row(3, 0, 0, TOMBSTONE)])
    older = codec.entries([Row(1, 2, 7), Row(2, 2, 8), Row(3, 2, 9)])
    found = KeyIndex([newer, older], set(FILES)).lookup(codec.keys([3, 2, 1]))
    rows = zip(
        found.query, found.run, (found.paths[file] for file in found.file), found.positions, strict=True
    )
    assert sorted(rows) == [(1, 0, FILES[1], 6), (2, 0, FILES[0], 5), (2, 1, FILES[2], 7)]
    assert dict(zip(found.paths, found.own.tolist(), strict=True)) == {
        FILES[0]: True,
        FILES[1]: False,
        FILES[2]: True,
    }


def test_keys_of_another_kind_are_an_error():
    index = KeyIndex([Codec(data=True, sequence_values="none", spread=1).entries([Row(1, 0, 0)])], set(FILES))
    with pytest.raises(IndexDamagedError, match="other key columns"):
        index.lookup(Keys(np.array([0], dtype=np.uint64)))
