"""Position maps: what was written is read, or noticed; and runs that go through them answer as if they were written anew."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import IndexDamagedError
from streamlake.index.runs.entries import TOMBSTONE
from streamlake.index.runs.file_moves import FileMoves
from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.merge import merge_runs
from streamlake.index.runs.merge_plan import MOST_MAPS, plan_merges
from streamlake.index.runs.position_map_file import open_position_map
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.runs.position_map_writer import PositionMapWriter
from streamlake.index.runs.run import open_run, write_run
from streamlake.index.runs.run_writer import RunRef, RunWriter
from streamlake.index.state import IndexState
from streamlake.storage.local import LocalFileIO
from tests.unit.index.models import CODECS, FILES, LIVE, RUNS, Codec, Row, answers

IO = LocalFileIO()
Place = tuple[str, int]


def moves_of(moved: dict[int, tuple[int, int]]) -> FileMoves:
    """The moves {old position: (number of the new file, position)}."""
    old = sorted(moved)
    columns = (old, [1] * len(old), [moved[at][0] for at in old], [moved[at][1] for at in old])
    return FileMoves(*(np.array(column, dtype=np.int64) for column in columns))


def written(path: Path, *groups: tuple[list[str], dict[str, FileMoves]]) -> PositionMapRef:
    writer = PositionMapWriter(IO, str(path), "uuid")
    for new, moves in groups:
        writer.append(new, moves)
    return writer.close()


@pytest.mark.parametrize("seed", range(20))
def test_each_row_is_where_the_writer_said(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    scale = source.choice((1, 200, 70_000, 1 << 33))
    expected: dict[tuple[str, int], Place] = {}
    groups = []
    for number in range(source.randrange(1, 4)):
        new = [f"new-{number}-{at}" for at in range(source.randrange(1, 4))]
        free = {name: list(range(200)) for name in new}
        moves = {}
        for at in range(source.randrange(1, 4)):
            old, position, columns = f"old-{number}-{at}", 0, []
            while source.random() < 0.8:
                position += source.randrange(3)
                length, to = source.randrange(1, 5), source.randrange(len(new))
                start = free[new[to]].pop(source.randrange(len(free[new[to]]))) * scale * 8
                columns.append((position * scale * 8, length, to, start))
                for ahead in range(length):
                    expected[old, position * scale * 8 + ahead] = new[to], start + ahead
                position += 1
            arrays = [np.array(column, dtype=np.int64) for column in zip(*columns, strict=True)]
            moves[old] = FileMoves(*(arrays or [np.zeros(0, np.int64)] * 4))
        groups.append((new, moves))
    ref = written(tmp_path / "a.map", *groups)
    found = open_position_map(IO, ref)
    assert [path for path, _ in found.old_files] == [old for _, moves in groups for old in moves]
    assert dict(found.new_files) == {
        name: sum(place[0] == name for place in expected.values()) for new, _ in groups for name in new
    }
    for name, _ in found.new_files:
        sources = {old for (old, _), place in expected.items() if place[0] == name}
        assert set(found.sources_of(name)) == sources
    asked = [*expected, *((old, at) for old, at in expected if (old, at + 1) not in expected)]
    asked += [(old, at + 1) for old, at in expected] + [(old, 0) for _, moves in groups for old in moves]
    numbers = np.array([found.number_of(old) for old, _ in asked], dtype=np.int64)
    if asked:
        files, places = found.places(numbers, np.array([at for _, at in asked], dtype=np.int64))
        for each, file, place in zip(asked, files.tolist(), places.tolist(), strict=True):
            known = expected.get(each)
            assert (file < 0) if known is None else (found.new_files[file][0], place) == known
    assert found.number_of("elsewhere") == -1


def test_a_map_that_is_not_what_was_written_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.map"
    ref = written(path, (["new"], {"old": moves_of({0: (0, 5), 7: (0, 6)})}))
    data = path.read_bytes()
    assert len(data) == ref.bytes
    for at in range(len(data)):
        harmed = bytearray(data)
        harmed[at] ^= 16
        path.write_bytes(harmed)
        with pytest.raises(IndexDamagedError, match=r"a\.map"):
            open_position_map(IO, ref)
    for size in (0, 5, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(IndexDamagedError, match="not the position map"):
            open_position_map(IO, ref)
    path.write_bytes(data)
    with pytest.raises(IndexDamagedError, match="not the position map"):
        open_position_map(IO, replace(ref, crc=ref.crc ^ 1))
    path.unlink()
    with pytest.raises(IndexDamagedError, match="is missing"):
        open_position_map(IO, ref)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"path": 1}', '{"path": "a", "bytes": "1", "crc": 2, "stretches": 3}']
)
def test_a_summary_that_names_no_map(text: str) -> None:
    with pytest.raises(ValueError, match="names no position map"):
        PositionMapRef.from_text(text)


def test_a_summary_names_its_map() -> None:
    ref = PositionMapRef("s3://b/t/metadata/_index/1.map", 5, 6, 7)
    assert PositionMapRef.from_text(ref.to_text()) == ref


MOVES = st.dictionaries(
    st.tuples(st.integers(0, len(FILES) - 1), st.integers(0, 3)), st.integers(0, len(FILES) - 1), max_size=12
)


@settings(max_examples=150, deadline=None)
@given(CODECS, RUNS, LIVE, st.lists(MOVES, max_size=3), st.data())
def test_runs_with_maps_answer_as_if_they_were_written_anew(
    tmp_path_factory: pytest.TempPathFactory,
    codec: Codec,
    runs: list[list[Row]],
    live: set[int],
    maps: Any,
    data: Any,
) -> None:
    """Each map moves rows of some files to others, which may be those of another map; a run has the maps that came
    after it."""
    home = tmp_path_factory.mktemp("maps")
    moved = [_one_each(each, 10 * (number + 1)) for number, each in enumerate(maps)]
    refs = [_map(home / f"{number}.map", each) for number, each in enumerate(moved)]
    since = sorted(data.draw(st.lists(st.integers(0, len(maps)), min_size=len(runs), max_size=len(runs))))[
        ::-1
    ]
    opened, plain = [], []
    for number, (rows, first) in enumerate(zip(runs, since, strict=True)):
        ref = write_run(IO, str(home / f"{number}.run"), codec.entries(rows), 0, 1)
        opened.append(open_run(IO, replace(ref, maps=tuple(refs[first:]))))
        plain.append(codec.entries([_moved(row, moved[first:]) for row in rows]))
    paths = {FILES[at] for at in live}
    keys: list[int | None] = [None, 0, 1, 2, 3, 7]
    expected = answers(KeyIndex(plain, paths), codec, keys)
    assert answers(KeyIndex(opened, paths), codec, keys) == expected
    if opened:
        ref = merge_runs(opened, paths, RunWriter(IO, str(home / "merged.run"), 0, 1), is_oldest=True)
        assert ref.maps == ()
        assert answers(KeyIndex([open_run(IO, ref)], paths), codec, keys) == expected


def _one_each(moves: dict[tuple[int, int], int], place: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Old (file, position) -> new (file, position); every row gets a place of its own. No file is old and new."""
    old = {file for file, _ in moves}
    kept = {at: to for at, to in moves.items() if to not in old}
    return {at: (to, place + number) for number, (at, to) in enumerate(sorted(kept.items()))}


def _map(path: Path, moved: dict[tuple[int, int], tuple[int, int]]) -> PositionMapRef:
    files = sorted({file for file, _ in moved})
    moves = {
        FILES[file]: moves_of({at: to for (each, at), to in moved.items() if each == file}) for file in files
    }
    return written(path, (list(FILES), moves))


def _moved(row: Row, maps: list[dict[tuple[int, int], tuple[int, int]]]) -> Row:
    if row.flags & TOMBSTONE:
        return row
    for moved in maps:
        file, position = moved.get((row.file, row.position), (row.file, row.position))
        row = replace(row, file=file, position=position)
    return row


def test_a_state_keeps_the_maps_of_its_runs() -> None:
    maps = [PositionMapRef(f"/{number}.map", number, number, number) for number in range(3)]
    runs = (
        RunRef("/b.run", 0, 1, 5, 6, 7, maps=(maps[2],)),
        RunRef("/a.run", 0, 1, 5, 6, 7, maps=(maps[0], maps[2])),
    )
    state = IndexState("uuid", (1,), (), 1, runs, 5, None)
    assert IndexState.from_bytes(state.to_bytes(), "/s") == state
    assert state.maps == (maps[2], maps[0])
    after = state.with_map(maps[1])
    assert [run.maps for run in after.runs] == [(maps[2], maps[1]), (maps[0], maps[2], maps[1])]
    assert {each.path for each in after.files} == {"/a.run", "/b.run", "/0.map", "/1.map", "/2.map"}
    plain = replace(state, runs=tuple(replace(run, maps=()) for run in runs))
    assert b"maps" not in plain.to_bytes(), "versions without maps can read it"


@pytest.mark.parametrize(
    ("count", "bucket", "merged"), [(MOST_MAPS - 1, 0, 0), (MOST_MAPS, 0, 2), (MOST_MAPS, 1, 0)]
)
def test_a_run_with_many_maps_is_merged(count: int, bucket: int, merged: int) -> None:
    maps = tuple(PositionMapRef(f"/{number}.map", 1, 1, 1) for number in range(count))
    newest = RunRef("/b", bucket, 8, 10_000, 1, 1)
    assert plan_merges([newest, RunRef("/a", bucket, 8, 50_000, 1, 1, maps=maps)]) == merged


def test_a_run_whose_maps_are_large_is_merged() -> None:
    def run(stretches: int) -> RunRef:
        return RunRef("/a", 0, 8, 50_000, 1, 1, maps=(PositionMapRef("/0.map", 1, 1, stretches),))

    assert plan_merges([run(800_000)]) == 0
    assert plan_merges([run(800_001)]) == 1


def test_a_map_of_no_rows(tmp_path: Path) -> None:
    """All rows of the old files had been deleted."""
    found = open_position_map(IO, written(tmp_path / "a.map", ([], {"old": moves_of({})})))
    assert (found.new_files, found.old_files) == ((), (("old", ()),))
    files, _ = found.places(np.zeros(2, np.int64), np.arange(2))
    assert files.tolist() == [-1, -1]
    assert pa.array(files).null_count == 0
