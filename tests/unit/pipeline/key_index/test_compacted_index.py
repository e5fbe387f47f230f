"""The key index follows a compaction through its position map: no compacted file is read, and no row comes back to life."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.commit.marker import POSITION_MAP
from streamlake.errors import StorageError
from streamlake.failpoints import arm
from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.merge_plan import MOST_MAPS
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.runs.run import open_run
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import rewrite_data_files
from streamlake.maintain.compact.group_rewrite import RewrittenGroup
from streamlake.maintain.compact.old_maps import UNNEEDED_MS, remove_old_maps
from streamlake.maintain.expire import expire_snapshots
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.records import ROW_KIND, RowKind
from streamlake.storage.local import LocalFileIO
from streamlake.table.producers.rewrite_files import RewriteFiles
from streamlake.table.updates.manage_refs import ManageRefs
from tests.helpers import foreign_writers
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.local_upserts import LocalUpserts

MODES = [(version, mode) for version in (2, 3) for mode in ("position", "copy-on-write")]
ALL = {"rewrite-all": "true"}
DELETE = int(RowKind.DELETE)
Row = tuple[int, int, int]


def changes(*rows: Row, deleted: Sequence[Row] = ()) -> pa.Table:
    """Changes (id, ver, v), and deletes."""
    every = [*rows, *deleted]
    return pa.table(
        {
            "id": pa.array([row[0] for row in every], pa.int64()),
            "ver": pa.array([row[1] for row in every], pa.int64()),
            "v": pa.array([row[2] for row in every], pa.int64()),
            ROW_KIND: pa.array([2] * len(rows) + [DELETE] * len(deleted), pa.int8()),
        }
    )


def compact(location: str, between: Callable[[], object] = lambda: None, **given: Any) -> Any:
    """Compact; `between` is called once the new files are there and their commit begins."""

    def before_commit(producer: RewriteFiles, groups: Sequence[RewrittenGroup]) -> None:
        between()

    given = {"options": ALL, **given}
    return rewrite_data_files(open_table(location), CompactSettings(**given), before_commit=before_commit)


def live(location: str) -> list[Row]:
    check_table(open_table(location), files_exist=True)
    columns = load_table(location).scan().to_arrow().select(["id", "ver", "v"])
    return sorted(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def check_index(stream: LocalUpserts) -> None:
    """The index of the head says what one says that is built from the table: each live row, each at its place. What it
    knows beyond that is deleted in the table."""
    stream.table.refresh()
    indexed = stream.run._refreshed()
    table = stream.table
    fresh = IndexedRows.of(table, stream.options.key, indexed.state.bucketing)
    tasks = indexed.tasks(table.specs, indexed.live_files)
    rebuilt = fresh.index(None, list(tasks.values()))
    sources = stream.run._seeing(stream.run._plain_target(stream._identity), indexed).source_rows()
    for bucket in range(indexed.state.buckets):
        opened = [open_run(table.io, ref) for ref in indexed.state.runs_of(bucket)]
        expected = [open_run(table.io, ref) for ref in rebuilt if ref.bucket == bucket]
        keys = [entries.keys for run in (*opened, *expected) for entries in run.entries()]
        for asked in keys:
            known = KeyIndex(opened, indexed.live_files).lookup(asked)
            right = KeyIndex(expected, indexed.live_files).lookup(asked)
            there = known.only(sources.are_there(known, np.ones(len(known), dtype=bool)))
            assert places(there) == places(right)
    for ref in rebuilt:
        table.io.delete(ref.path)


def places(found: Any) -> set[tuple[int, str, int]]:
    paths = [found.paths[number] for number in found.file.tolist()]
    return set(zip(found.query.tolist(), paths, found.positions.tolist(), strict=True))


@pytest.fixture
def opened_data(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files that are opened from now on, compactions aside."""
    opened: list[str] = []
    original = LocalFileIO.open_input

    def noting(io: LocalFileIO, path: str) -> Any:
        if "/data/" in path and path.endswith(".parquet") and "deletes" not in path:
            opened.append(path)
        return original(io, path)

    monkeypatch.setattr(LocalFileIO, "open_input", noting)
    return opened


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def stream_of(home: str, version: int = 3, delete_mode: str = "position", **options: Any) -> LocalUpserts:
    create_table(home, "id long, ver long, v long", format_version=version)
    return LocalUpserts(home, key=["id"], delete_mode=delete_mode, **options)


def filled(stream: LocalUpserts, checkpoints: int = 4) -> None:
    for number in range(checkpoints):
        stream.checkpoint(changes(*((number * 10 + at, 1, number) for at in range(10))))


@pytest.mark.parametrize(("version", "mode"), MODES)
@pytest.mark.parametrize("restarted", [False, True])
def test_the_checkpoint_after_a_compaction_opens_no_compacted_file(
    home: str, version: int, mode: str, restarted: bool, opened_data: list[str]
) -> None:
    stream = stream_of(home, version, mode)
    filled(stream)
    stream.checkpoint(changes((3, 2, 30), deleted=[(4, 2, 0)]))
    compact(home, strategy="sort", sort_by=("v desc", "id"))
    compacted = {file.file_path for file in live_data_files(open_table(home))}
    assert len(compacted) == 1
    if restarted:
        stream.restart()
    opened_data.clear()
    expected = {(key, 1, key // 10) for key in range(40)} - {(3, 1, 0), (4, 1, 0), (13, 1, 1), (25, 1, 2)}
    stream.run.aim(stream._identity)
    assert opened_data == []
    receipt = stream.checkpoint(changes((13, 2, 130), (100, 1, 1), deleted=[(25, 2, 0), (4, 3, 0)]))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 0
    if mode == "position":
        assert opened_data == []
    assert live(home) == sorted({*expected, (3, 2, 30), (13, 2, 130), (100, 1, 1)})
    check_index(stream)


@pytest.mark.parametrize(("version", "mode"), MODES)
def test_a_row_deleted_while_files_were_rewritten_stays_deleted(home: str, version: int, mode: str) -> None:
    stream = stream_of(home, version, mode, sequence_by=["ver"])
    filled(stream)
    if mode == "copy-on-write":
        stream.checkpoint(changes((3, 5, 30), deleted=[(14, 5, 0)]))
        compact(home)
    else:
        compact(home, lambda: stream.checkpoint(changes((3, 5, 30), deleted=[(14, 5, 0)])))
    assert POSITION_MAP in open_table(home).current_snapshot.summary
    receipt = stream.checkpoint(changes((3, 4, -1), (14, 4, -1), deleted=[(13, 1, 0)]))
    assert receipt is not None
    assert (receipt.counters["late"], receipt.counters["rows-indexed"]) == (2, 0)
    expected = {(key, 1, key // 10) for key in range(40)} - {(3, 1, 0), (13, 1, 1), (14, 1, 1)}
    assert live(home) == sorted({*expected, (3, 5, 30)})
    check_index(stream)


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_that_was_removed_while_it_was_rewritten(
    home: str, version: int, opened_data: list[str]
) -> None:
    """A checkpoint deletes all rows of a file."""
    stream = stream_of(home, version)
    filled(stream)
    gone = changes(deleted=[(key, 2, 0) for key in range(10, 20)])
    done = compact(home, lambda: stream.checkpoint(gone))
    assert len(done.snapshots) == 1
    opened_data.clear()
    receipt = stream.checkpoint(changes((7, 2, 70), (18, 3, 1)))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 0
    assert opened_data == []
    expected = {(key, 1, key // 10) for key in range(40) if not 10 <= key < 20} - {(7, 1, 0)}
    assert live(home) == sorted({*expected, (7, 2, 70), (18, 3, 1)})
    check_index(stream)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dies", [False, True])
def test_a_compaction_between_staging_and_commit(
    home: str, version: int, dies: bool, opened_data: list[str]
) -> None:
    stream = stream_of(home, version)
    filled(stream)
    staged = stream.stage(changes((7, 2, 70), deleted=[(18, 2, 0)]))
    assert staged is not None
    compact(home)
    opened_data.clear()
    if dies:
        checkpoint_id = stream.checkpoint_id
        stream.restart()
        stream.checkpoint_id = checkpoint_id
        assert len(stream.recover()) == 1
    else:
        stream.run.commit(*staged)
    assert opened_data == []
    expected = {(key, 1, key // 10) for key in range(40)} - {(7, 1, 0), (18, 1, 1)}
    assert live(home) == sorted({*expected, (7, 2, 70)})
    check_index(stream)


def test_only_what_the_map_does_not_cover_is_read(home: str, opened_data: list[str]) -> None:
    """Others append before the compaction, which rewrites their rows too, and after it."""
    stream = stream_of(home)
    filled(stream)
    table = open_table(home)
    append(table, changes((200, 1, 1), (201, 1, 1)).drop_columns([ROW_KIND]))
    foreign = {file.file_path for file in live_data_files(table)} - set(stream.run._index.indexed.live_files)
    compact(home)
    compact(home, strategy="sort", sort_by=("id desc",))
    table.refresh()
    before = {file.file_path for file in live_data_files(table)}
    append(table, changes((300, 1, 1)).drop_columns([ROW_KIND]))
    newest = {file.file_path for file in live_data_files(table)} - before
    opened_data.clear()
    receipt = stream.checkpoint(changes((200, 2, 2), (5, 2, 2), deleted=[(201, 2, 0), (300, 2, 0)]))
    assert set(opened_data) == foreign | newest
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 3
    expected = {(key, 1, key // 10) for key in range(40)} - {(5, 1, 0)}
    assert live(home) == sorted({*expected, (5, 2, 2), (200, 2, 2)})
    check_index(stream)


def test_where_a_file_that_was_not_covered_is_gone_the_new_file_is_read(home: str) -> None:
    stream = stream_of(home)
    filled(stream)
    table = open_table(home)
    append(table, changes((200, 1, 1)).drop_columns([ROW_KIND]))
    [foreign] = {file.file_path for file in live_data_files(table)} - set(
        stream.run._index.indexed.live_files
    )
    compact(home)
    table.io.delete(foreign)
    receipt = stream.checkpoint(changes((200, 2, 2), (5, 2, 2)))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 41
    assert {(5, 2, 2), (200, 2, 2)} < set(live_rows(home))
    check_index(stream)


def live_rows(home: str) -> list[Row]:
    columns = load_table(home).scan().to_arrow().select(["id", "ver", "v"])
    return sorted(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def harm_missing(path: Path) -> None:
    path.unlink()


def harm_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def harm_flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[70] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [harm_missing, harm_short, harm_flipped])
def test_without_its_map_the_compacted_files_are_read(
    home: str, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_of(home, sequence_by=["ver"])
    filled(stream)
    stream.checkpoint(changes(deleted=[(4, 5, 0)]))
    compact(home)
    harm(map_of(home))
    with caplog.at_level(logging.WARNING):
        receipt = stream.checkpoint(changes((13, 2, 130), (4, 4, 0)))
    assert "position map" in caplog.text
    assert receipt is not None
    assert (receipt.counters["late"], receipt.counters["rows-indexed"]) == (1, 39)
    expected = {(key, 1, key // 10) for key in range(40)} - {(4, 1, 0), (13, 1, 1)}
    assert live(home) == sorted({*expected, (13, 2, 130)})
    check_index(stream)


def map_of(home: str) -> Path:
    snapshot = open_table(home).current_snapshot
    assert snapshot is not None
    return Path(PositionMapRef.from_text(snapshot.summary[POSITION_MAP]).path.removeprefix("file:"))


def test_a_map_that_is_lost_later_has_the_index_built_again(home: str) -> None:
    stream = stream_of(home)
    filled(stream, 2)
    compact(home)
    path = map_of(home)
    stream.checkpoint(changes((100, 1, 1)))
    assert stream.run._index.indexed.state.maps
    path.unlink()
    stream.restart()
    receipt = stream.checkpoint(changes((13, 2, 130)))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 21
    assert (13, 1, 1) not in live(home)
    check_index(stream)


def test_a_map_of_another_compaction_is_not_believed(home: str) -> None:
    """The snapshot names a map, that is whole, of other files; and one of fewer rows than the file has."""
    stream = stream_of(home)
    filled(stream, 2)
    compact(home)
    older = open_table(home).current_snapshot.summary[POSITION_MAP]
    filled(stream, 3)

    def name_the_other(producer: RewriteFiles, groups: Sequence[RewrittenGroup]) -> None:
        set_summary = producer.set_summary
        producer.set_summary = lambda values: set_summary({**values, POSITION_MAP: older})  # type: ignore

    rewrite_data_files(open_table(home), CompactSettings(options=ALL), before_commit=name_the_other)
    assert open_table(home).current_snapshot.summary[POSITION_MAP] == older
    receipt = stream.checkpoint(changes((13, 2, 130)))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 30
    assert (13, 1, 1) not in live(home)
    check_index(stream)


def test_a_file_that_comes_back_is_read(home: str) -> None:
    """Another writer puts a compacted file back in place of the new one."""
    stream = stream_of(home, 2)
    filled(stream, 2)
    old = live_data_files(open_table(home))
    compact(home)
    table = open_table(home)
    [new] = live_data_files(table)
    overwrite = foreign_writers.OverwriteFiles(table).delete_file(new)
    for file in old:
        overwrite.add_file(file)
    overwrite.commit()
    receipt = stream.checkpoint(changes((13, 2, 130)))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 20
    assert (13, 1, 1) not in live(home)
    assert len(live(home)) == 20
    check_index(stream)


def test_two_indexes_with_other_keys_and_branches_take_the_same_map(
    home: str, opened_data: list[str]
) -> None:
    one = stream_of(home, sequence_by=["ver"], pipeline="one", job_id="one")
    filled(one)
    two = LocalUpserts(home, key=["id", "v"], pipeline="two", job_id="two")
    two.checkpoint(changes((500, 1, 5)))
    one.checkpoint(changes((3, 5, 3)))
    two.checkpoint(changes((501, 1, 5)))
    one.checkpoint(changes((4, 5, 4)))
    ManageRefs(open_table(home)).create_branch("audit").commit()
    for _ in range(2):
        one.checkpoint(changes((5, 5, 5)))
        two.checkpoint(changes((502, 1, 5)))
    compact(home)
    opened_data.clear()
    one.checkpoint(changes((6, 4, 6), (501, 9, 9)))
    two.checkpoint(changes((502, 2, 5)))
    three = LocalUpserts(home, key=["id"], sequence_by=["ver"], branch="audit", pipeline="c", job_id="c")
    three.checkpoint(changes((3, 4, -3), (9, 9, 9)))
    rewritten = set(opened_data)
    assert {(3, 5, 3), (6, 4, 6), (501, 9, 9), (502, 2, 5)} < set(live(home))
    for stream in (one, two, three):
        check_index(stream)
    main = {file.file_path for file in live_data_files(open_table(home))}
    assert not {path for path in rewritten if path in main and "compaction" in path}


@pytest.mark.parametrize("version", [2, 3])
def test_of_two_compactions_at_once_one_wins(home: str, version: int) -> None:
    stream = stream_of(home, version)
    filled(stream)
    inner: list[Any] = []
    outer = compact(home, lambda: inner.append(compact(home)))
    assert (len(inner[0].snapshots), len(outer.snapshots)) == (1, 0)
    maps = sorted(Path(home, "metadata", "_index").glob("*.map"))
    assert maps == [map_of(home)]
    receipt = stream.checkpoint(changes((13, 2, 130)))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 0
    assert len(live(home)) == 40
    check_index(stream)


def test_maps_leave_the_index_when_runs_are_merged(home: str) -> None:
    """Many compactions: no run goes through more than a few maps, and what is found stays right."""
    stream = stream_of(home, tasks=1)
    stream.checkpoint(changes(*((1000 + key, 0, 0) for key in range(30_000))))
    filled(stream)
    most = 0
    for number in range(40):
        stream.checkpoint(changes((number, number + 2, number), (1000 + number, 1, 1)))
        compact(home)
        stream.checkpoint(changes((100 + number, 1, 0)))
        state = stream.run._index.indexed.state
        most = max([most, *(len(run.maps) for run in state.runs)])
    assert most == MOST_MAPS - 1
    assert len(live(home)) == 30_080
    check_index(stream)


SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories(home: str, seed: int) -> None:
    """Upserts and deletes, late ones too, by two pipelines, foreign rows, and compactions: between checkpoints, between
    the staging of one and its commit, and with checkpoints while they rewrite."""
    source = random.Random(seed)
    version, mode = MODES[seed % len(MODES)]
    streams = [
        stream_of(home, version, mode, sequence_by=["ver"], pipeline="a", job_id="a"),
        LocalUpserts(
            home, key=["id"], sequence_by=["ver"], delete_mode=mode, pipeline="b", job_id="b", tasks=2
        ),
    ]
    model: dict[int, tuple[int, int | None]] = {}
    foreign = iter(range(1000, 10_000))

    def some_changes() -> pa.Table:
        made, deleted = [], []
        for _ in range(source.randrange(1, 12)):
            key, number, value = source.randrange(30), source.randrange(40), source.randrange(1000)
            is_deleted = source.random() < 0.3
            if any(row[0] == key for row in (*made, *deleted)):
                continue
            (deleted if is_deleted else made).append((key, number, value))
            if number >= model.get(key, (-1, None))[0]:
                model[key] = number, None if is_deleted else value
        return changes(*made, deleted=deleted)

    def checkpoint(between: Callable[[Any], None] | None = None) -> None:
        source.choice(streams).checkpoint(some_changes(), between)

    def compaction(between: Callable[[], object] = lambda: None) -> None:
        options = {"rewrite-all": "true", "max-file-group-input-files": str(source.choice((2, 3, 50)))}
        if source.random() < 0.4:
            options["max-files-to-rewrite"] = str(source.randrange(1, 6))
        sort = {"strategy": "sort", "sort_by": ("v desc",)} if source.random() < 0.4 else {}
        compact(home, between, options=options, **sort)

    for _ in range(22):
        what = source.random()
        if what < 0.4:
            checkpoint()
        elif what < 0.5:
            key = next(foreign)
            model[key] = 0, key
            foreign_writers.append_rows(home, changes((key, 0, key)).drop_columns([ROW_KIND]))
        elif what < 0.65:
            compaction()
        elif what < 0.75:
            checkpoint(lambda _: compaction())
        elif what < 0.9 and mode == "position":
            compaction(lambda: [checkpoint() for _ in range(source.randrange(1, 3))])
        else:
            stream = source.choice(streams)
            checkpoint_id = stream.checkpoint_id
            stream.restart()
            stream.checkpoint_id = checkpoint_id
        expected = [(key, number, value) for key, (number, value) in model.items() if value is not None]
        assert live(home) == sorted(expected)
    for stream in streams:
        check_index(stream)


def test_maps_are_deleted_by_a_later_compaction_once_nothing_needs_them(home: str) -> None:
    stream = stream_of(home, tasks=1)
    filled(stream, 2)
    compact(home)
    path = map_of(home)
    filled_map = path.read_bytes()
    stream.checkpoint(changes((100, 1, 1)))
    needed = [each for each in (path,) if stream.run._index.indexed.state.maps]
    assert needed == [path]

    def age(each: Path) -> None:
        old = time.time() - UNNEEDED_MS / 1000 - 60
        os.utime(each, (old, old))

    age(path)
    forgotten, fresh = path.with_name("forgotten.map"), path.with_name("fresh.map")
    for each in (forgotten, fresh):
        each.write_bytes(b"?")
    age(forgotten)
    table = open_table(home)
    assert remove_old_maps(table) == 1
    assert (path.exists(), forgotten.exists(), fresh.exists()) == (True, False, True)
    expire_snapshots(table, older_than_ms=2**62, retain_last=1)
    assert all(POSITION_MAP not in each.summary for each in open_table(home).metadata.snapshots)
    assert remove_old_maps(open_table(home)) == 0, "a state of the index names it"
    for number in range(60):
        stream.checkpoint(changes((number % 7, 2, number)))
    assert not stream.run._index.indexed.state.maps
    assert path.read_bytes() == filled_map, "streams leave maps alone"
    compact(home)
    assert not path.exists()
    assert fresh.exists()
    check_index(stream)


def test_where_a_state_cannot_be_read_no_map_is_deleted(home: str, caplog: pytest.LogCaptureFixture) -> None:
    stream = stream_of(home)
    filled(stream, 1)
    directory = Path(home, "metadata", "_index")
    forgotten = directory / "forgotten.map"
    forgotten.write_bytes(b"?")
    os.utime(forgotten, (0, 0))
    (directory / "harmed.json").write_bytes(b"?")
    assert remove_old_maps(open_table(home)) == 0
    assert "harmed.json" in caplog.text
    assert forgotten.exists()


@pytest.mark.parametrize("name", ["before-swap", "file-groups-rewritten"])
def test_a_compaction_that_fails_leaves_no_map(home: str, name: str) -> None:
    stream = stream_of(home)
    filled(stream)
    arm(f"{name}=raise:StorageError")
    try:
        with pytest.raises(StorageError):
            compact(home)
    finally:
        arm("")
    assert not list(Path(home, "metadata", "_index").glob("*.map"))
    stream.checkpoint(changes((13, 2, 130)))
    assert len(live(home)) == 40


def test_where_no_map_can_be_written_the_table_is_compacted_without(
    home: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_of(home)
    filled(stream)
    original = LocalFileIO.open_output

    def failing(io: LocalFileIO, path: str) -> Any:
        if path.endswith(".map"):
            raise StorageError(f"{path}: no space left")
        return original(io, path)

    monkeypatch.setattr(LocalFileIO, "open_output", failing)
    assert len(compact(home).snapshots) == 1
    assert "no space left" in caplog.text
    receipt = stream.checkpoint(changes((13, 2, 130)))
    assert receipt is not None
    assert receipt.counters["rows-indexed"] == 40
    assert len(live(home)) == 40


def test_a_table_without_a_key_index_gets_no_map(home: str) -> None:
    create_table(home, "id long, ver long, v long")
    for number in range(3):
        append(open_table(home), changes((number, 1, 1)).drop_columns([ROW_KIND]))
    compact(home)
    snapshot = open_table(home).current_snapshot
    assert snapshot is not None
    assert snapshot.operation == "replace"
    assert POSITION_MAP not in snapshot.summary
    assert not list(Path(home, "metadata").rglob("*.map"))
