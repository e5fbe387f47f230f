"""Compaction: the same rows in fewer files, whatever others commit meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake.errors import ConflictValidationError, DataInvalidError, InvalidOptionError
from streamlake.failpoints import arm
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import Compaction, rewrite_data_files
from streamlake.maintain.compact.group_rewrite import RewrittenGroup
from streamlake.maintain.orphans import remove_orphans
from streamlake.operate.doctor.diagnosis import diagnose
from streamlake.records import ROW_KIND, RowKind
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.rewrite_files import RewriteFiles
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import LoadedTable, create_table, load_table
from tests.helpers.batch_write import append
from tests.helpers.foreign_writers import evolve, roll_back, upgrade
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.row_deltas import row_delta
from tests.helpers.tables import make_table

ALL = {"rewrite-all": "true"}


def rows(*ids: int, category: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "category": pa.array([category] * len(ids))})


def ids_of(table: Table) -> list[int]:
    return sorted(LoadedTable(table).scan().to_arrow()["id"].to_pylist())


def lineage(table: Table) -> list[dict[str, Any]]:
    """Every row with its row id and the sequence number of its last change."""
    columns = ["*", "_row_id", "_last_updated_sequence_number"] if table.format_version >= 3 else ["*"]
    found = LoadedTable(table.refresh()).scan(columns=columns).to_arrow().to_pylist()
    return sorted(found, key=lambda row: tuple(str(value) for value in row.values()))


def compact(table: Table, between: Callable[[], object] = lambda: None, **given: Any) -> Compaction:
    """Compact; `between` is called once the new files are there and their commit begins."""
    given = {"options": ALL, **given}

    def before_commit(producer: RewriteFiles, groups: Sequence[RewrittenGroup]) -> None:
        between()

    return rewrite_data_files(table, CompactSettings(**given), before_commit=before_commit)


@pytest.mark.parametrize("version", [2, 3])
def test_many_small_files_become_one(tmp_path: Path, version: int) -> None:
    table = make_table(tmp_path / "t", format_version=version)
    for each in range(6):
        append(table, rows(2 * each, 2 * each + 1))
    row_delta(table, {3, 4, 5}).commit()
    before = lineage(table)
    files = {file.file_path for file in live_data_files(table)}
    done = compact(table, options={})
    assert lineage(table) == before
    assert (done.rewritten.files, done.rewritten.rows, done.added.files, done.added.rows) == (5, 10, 1, 9)
    assert (done.deleted_rows, done.delete_files, done.removed_delete_files) == (1, 1, 1)
    [file] = live_data_files(table)
    assert file.file_path not in files
    snapshot = table.current_snapshot
    assert snapshot is not None
    assert (snapshot.operation, snapshot.summary["total-delete-files"]) == ("replace", "0")
    assert [entry.sequence_number for entry in live_entries(table)] == [snapshot.sequence_number - 1]
    assert LoadedTable(table).scan_changes(snapshot.parent_snapshot_id).to_arrow().num_rows == 0
    check_table(table, files_exist=True)


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_others_are_carried_over(tmp_path: Path, version: int) -> None:
    table = make_table(tmp_path / "t", format_version=version)
    for each in range(5):
        append(table, rows(*range(10 * each, 10 * each + 10)))
    row_delta(table, {3, 14}).commit()
    other = load_table(table.location).table
    after: list[list[dict[str, Any]]] = []

    def delete_and_add() -> None:
        row_delta(other, {4, 5, 33}, rows(33, 100)).commit()
        row_delta(other, {6, 100}, rows(101)).commit()
        after.append(lineage(other))

    done = compact(table, delete_and_add)
    assert lineage(table) == after[0]
    assert done.carried_rows == 4
    assert (done.rewritten.files, done.added.rows) == (5, 48)
    start = table.metadata.snapshots[5].snapshot_id
    changes = LoadedTable(table).scan_changes(start).to_arrow()
    found = sorted(zip(changes[ROW_KIND].to_pylist(), changes["id"].to_pylist(), strict=True))
    assert found == [
        *(("+I", new) for new in (100, 101)),
        *(("-D", gone) for gone in (4, 5, 6, 100)),
    ]
    check_table(table, files_exist=True)
    row_delta(table, {7}).commit()
    assert 7 not in ids_of(table)
    check_table(table, files_exist=True)


def many(table: Table, files: int = 6, size: int = 10) -> None:
    for each in range(files):
        append(table, rows(*range(size * each, size * (each + 1))))


def data_files_on_disk(table: Table) -> set[str]:
    return {path.name for path in Path(table.location, "data").rglob("*.*") if path.suffix != ".crc"}


def test_sorted_by_the_tables_order_or_a_given_one(tmp_path: Path) -> None:
    made = create_table(str(tmp_path / "t"), "id long, category string", sort_by=["category", "id desc"])
    table = made.table
    chance = random.Random(1)
    for _ in range(5):
        some = [chance.randrange(1000) for _ in range(50)]
        append(table, pa.table({"id": some, "category": [chance.choice("abc") for _ in some]}))
    expected = sorted(
        made.refresh().scan().to_arrow().to_pylist(), key=lambda row: (row["category"], -row["id"])
    )
    made.compact("sort")
    assert made.scan().to_arrow().to_pylist() == expected
    [file] = live_data_files(table.refresh())
    assert file.sort_order_id == 1
    compact(table, strategy="sort", sort_by=("id",))
    assert load_table(table.location).scan().to_arrow()["id"].to_pylist() == sorted(
        row["id"] for row in expected
    )
    [file] = live_data_files(table)
    assert file.sort_order_id == 0
    compact(table)
    [file] = live_data_files(table)
    assert file.sort_order_id is None, "rows keep their order, but nobody has looked whether they are in one"


@pytest.mark.parametrize("strategy", [("binpack", ()), ("sort", ("id desc",))])
def test_partitions_old_specs_and_old_columns(tmp_path: Path, strategy: tuple[str, tuple[str, ...]]) -> None:
    """Old files of an unpartitioned spec, without a column that is new, by a name that is old."""
    table = make_table(tmp_path / "t", format_version=3)
    for category in "abc":
        append(table, rows(*range(5), category=category))
    evolve(table.location, ["category"])
    UpdateSchema(table.refresh()).rename("id", "number").add_column("more", "int").commit()
    table.refresh()
    for category in "ab":
        some = pa.table(
            {"number": [10, 11], "category": [category] * 2, "more": pa.array([1, 2], pa.int32())}
        )
        append(table, some)
    before = lineage(table)
    done = compact(
        table, strategy=strategy[0], sort_by=tuple(each.replace("id", "number") for each in strategy[1])
    )
    assert lineage(table) == before
    assert sorted(group.partition for group in done.groups) == ["", "category=a", "category=b"]
    assert {file.spec_id for file in live_data_files(table)} == {table.spec.spec_id}
    assert sorted(file.partition for file in live_data_files(table)) == [
        ("a",),
        ("a",),
        ("b",),
        ("b",),
        ("c",),
    ]
    compact(table, options={**ALL, "output-spec-id": "0"})
    assert lineage(table) == before
    assert {file.spec_id for file in live_data_files(table)} == {0}
    check_table(table, files_exist=True)


def test_a_filter_chooses_partitions(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=("category",))
    for each in range(3):
        for category in "ab":
            append(table, rows(each, category=category))
    row_delta(table, {1}).commit()
    done = compact(table, filter="category = 'a'")
    assert (done.rewritten.files, done.added.files) == (2, 1)
    assert len(live_data_files(table)) == 3
    with pytest.raises(
        InvalidOptionError, match=r"on id, which is no partition column.*partitioned by category"
    ):
        compact(table, filter="category = 'a' and id > 3")
    with pytest.raises(InvalidOptionError, match="it is not partitioned"):
        compact(make_table(tmp_path / "u"), filter="id = 1")


def test_a_filter_never_leaves_out_a_delete(tmp_path: Path) -> None:
    """The filter is on `day`, the delete's bounds are those of `id`: it applies to whole files all the same."""
    table = make_table(tmp_path / "t", "id long, at long", partition_by=("truncate(10, at)",))
    for each in range(3):
        append(table, pa.table({"id": [each, each + 10], "at": [1, 2]}))
    stream = LocalUpserts(table.location, key=["at", "id"], delete_mode="equality")
    kinds = pa.array([RowKind.DELETE], pa.int8())
    stream.checkpoint(pa.table({"id": [0], "at": [1], ROW_KIND: kinds}))
    before = lineage(table)
    done = compact(table, filter="at = 2")
    assert done.rewritten.files == 3
    assert lineage(table) == before
    assert len(before) == 5


def test_files_of_a_wrong_size_are_cut(tmp_path: Path) -> None:
    properties = {"write.parquet.row-group-size-bytes": "10000"}
    table = make_table(tmp_path / "t", properties=properties)
    chance = random.Random(3)
    append(table, rows(*(chance.randrange(1 << 60) for _ in range(30_000))))
    before = lineage(table)
    size = live_data_files(table)[0].file_size_in_bytes
    done = compact(table, options={"target-file-size-bytes": str(size // 4)})
    sizes = [file.file_size_in_bytes for file in live_data_files(table)]
    assert (done.groups[0].output_files, len(sizes)) == (4, 4)
    assert max(sizes) < 1.5 * min(sizes)
    assert lineage(table) == before
    assert not compact(table, options={"target-file-size-bytes": str(size // 4)}).groups


def test_nothing_to_do(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    assert compact(table).groups == ()
    append(table, rows(1))
    before = table.refresh().current_snapshot
    assert compact(table, options={}).groups == ()
    assert compact(table, options={}).snapshots == ()
    assert table.refresh().current_snapshot == before


def test_files_whose_rows_are_all_deleted_go(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    append(table, rows(1, 2))
    stream = LocalUpserts(table.location, key=["id"], delete_mode="equality")
    stream.checkpoint(pa.table({"id": [1, 2], "category": ["", ""], ROW_KIND: pa.array([3, 3], pa.int8())}))
    assert ids_of(table.refresh()) == []
    done = compact(table)
    assert (done.added.files, live_data_files(table), live_entries(table)) == (0, [], [])
    check_table(table)


def test_a_dry_run_says_what_would_be_done(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    files, snapshot = data_files_on_disk(table), table.refresh().current_snapshot
    done = compact(table, options={}, dry_run=True)
    assert (done.rewritten.files, done.rewritten.rows, done.groups[0].output_files) == (6, 60, 1)
    assert (done.snapshots, done.added.files, done.dry_run) == ((), 0, True)
    assert (data_files_on_disk(table), table.refresh().current_snapshot) == (files, snapshot)


@pytest.mark.parametrize("partial", ["true", "false"])
def test_of_two_compactions_one_wins(tmp_path: Path, partial: str) -> None:
    table = make_table(tmp_path / "t", partition_by=("category",), format_version=3)
    for each in range(3):
        for category in "ab":
            append(table, rows(each, each + 10, category=category))
    before = lineage(table)
    options = {**ALL, "partial-progress.enabled": partial}
    other = load_table(table.location).table
    seen = []

    def first() -> None:
        if not seen:
            seen.append(compact(other, filter="category = 'a'"))

    done = compact(table, first, options=options)
    assert (seen[0].rewritten.files, seen[0].given_up) == (3, 0)
    assert (done.rewritten.files, done.given_up, len(done.snapshots)) == (3, 1, 1)
    assert lineage(table) == before
    assert len(live_data_files(table)) == 2
    assert len(data_files_on_disk(table)) == 8, "the files of the one that lost are deleted"
    assert compact(table, lambda: compact(other), options=options).given_up == 2
    assert lineage(table) == before
    check_table(table, files_exist=True)


def test_others_may_remove_some_of_the_files(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    other = load_table(table.location).table

    def overwrite() -> None:
        [first, *_] = sorted(live_data_files(other.refresh()), key=lambda file: file.file_path)
        OverwriteFiles(other).delete_file(first).commit()
        after.append(ids_of(other.refresh()))

    after: list[list[int]] = []
    done = compact(table, overwrite)
    assert (done.given_up, done.carried_rows) == (0, 10)
    assert ids_of(table) == after[0]
    check_table(table, files_exist=True)


def test_a_rollback_is_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    row_delta(table, {1, 2}).commit()
    files = data_files_on_disk(table)
    with pytest.raises(ConflictValidationError, match="no longer an ancestor"):
        compact(table, lambda: roll_back(table.location))
    assert (ids_of(table.refresh()), data_files_on_disk(table)) == (list(range(10)), files)


def test_an_upgrade_is_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    files = data_files_on_disk(table)
    with pytest.raises(ConflictValidationError, match="was upgraded to format version 3"):
        compact(table, lambda: upgrade(table.location))
    assert data_files_on_disk(table) == files
    compact(table)
    check_table(table, files_exist=True)
    append(table, rows(100))
    before = lineage(table)
    compact(table)
    assert lineage(table) == before


def test_rows_get_their_ids_between_an_upgrade_and_the_commit(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    UpdateProperties(table).upgrade_format_version(3).commit()
    other = load_table(table.location).table
    with pytest.raises(ConflictValidationError, match="may have row ids by now"):
        compact(table, lambda: append(other, rows(100)))
    before = lineage(table)
    compact(table)
    assert lineage(table) == before


def test_a_branch(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    ManageRefs(table.refresh()).create_branch("audit").commit()
    append(table, rows(100), branch="audit")
    row_delta(table, {1}).commit()
    main = table.refresh().current_snapshot
    done = compact(table, branch="audit")
    assert (done.rewritten.files, table.refresh().current_snapshot) == (7, main)
    audit = sorted(LoadedTable(table).scan(ref="audit").to_arrow()["id"].to_pylist())
    assert audit == [*range(60), 100]
    with pytest.raises(InvalidOptionError, match="none"):
        compact(table, branch="none")


@pytest.mark.parametrize("partial", ["true", "false"])
@pytest.mark.parametrize(
    ("place", "committed"),
    [
        ("data-file-opened", False),
        ("data-file-closed", False),
        ("file-group-rewritten", False),
        ("file-groups-rewritten", False),
        ("deletes-carried-over", False),
        ("manifest-list-written", False),
        ("before-swap", False),
        ("after-swap", True),
        ("compaction-committed", True),
    ],
)
def test_an_error_anywhere(tmp_path: Path, place: str, committed: bool, partial: str) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    many(table)
    other = load_table(table.location).table
    files: list[set[str]] = []

    def delete() -> None:
        row_delta(other, {3, 13}).commit()
        files.append(data_files_on_disk(table))

    options = {**ALL, "partial-progress.enabled": partial}
    if place == "file-groups-rewritten" and partial == "true":
        return
    early = place.startswith(("data-file", "file-group"))
    try:
        if early:
            delete()
            arm(f"{place}=raise")
        between = (lambda: None) if early else (lambda: (delete(), arm(f"{place}=raise")))
        with pytest.raises(Exception, match=f"raised at the failpoint {place}"):
            compact(table, between, options=options)
    finally:
        arm("")
    assert ids_of(table.refresh()) == [each for each in range(60) if each not in (3, 13)]
    check_table(table, files_exist=True)
    assert len(live_data_files(table)) == (1 if committed else 6)
    if place not in ("before-swap", "after-swap", "compaction-committed", "manifest-list-written"):
        left = data_files_on_disk(table) - files[0]
        assert not {name for name in left if name.endswith(".parquet")}, "new data files are deleted"
    compact(table)
    assert ids_of(table) == [each for each in range(60) if each not in (3, 13)]


def test_a_damaged_file_stops_it_and_leaves_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=("category",))
    for each in range(3):
        for category in "ab":
            append(table, rows(each, category=category))
    damaged = next(file for file in live_data_files(table.refresh()) if file.partition == ("a",))
    Path(damaged.file_path.removeprefix("file://")).write_bytes(b"PAR1 nothing else PAR1")
    files = data_files_on_disk(table)
    with pytest.raises(DataInvalidError, match="damaged"):
        compact(table)
    assert data_files_on_disk(table) == files
    done = compact(table, options={**ALL, "partial-progress.enabled": "true"})
    assert (done.rewritten.files, len(done.failed)) == (3, 1)
    assert damaged.file_path in done.failed[0]
    assert len(live_data_files(table)) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"min-input-file": "2"}}, "did you mean 'min-input-files'"),
        ({"options": {"min-input-files": "two"}}, "is not a whole number"),
        ({"options": {"min-input-files": "0"}}, "min-input-files=0 is below 1"),
        ({"options": {"target-file-size-bytes": "1000"}}, "smaller than a row group of the table"),
        ({"options": {"min-file-size-bytes": "600000000"}}, "must be above min-file-size-bytes"),
        ({"options": {"max-file-size-bytes": "100"}}, "below max-file-size-bytes"),
        ({"options": {"delete-ratio-threshold": "1.5"}}, "not above 0 and at most 1"),
        ({"options": {"rewrite-all": "yes"}}, "is not one of true, false"),
        ({"options": {"rewrite-job-order": "size"}}, "is not one of none, bytes-asc"),
        ({"options": {"output-spec-id": "7"}}, "is no spec of the table; it has 0"),
        ({"strategy": "zorder"}, "there is no strategy 'zorder'"),
        ({"strategy": "sort"}, "has no sort order"),
        ({"strategy": "sort", "sort_by": ("nothing",)}, "nothing"),
        ({"sort_by": ("id",)}, "sort_by is for the strategy 'sort'"),
        ({"filter": "id ="}, "id ="),
    ],
)
def test_what_is_wrong(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    with pytest.raises(InvalidOptionError) as caught:
        compact(table, **given)
    assert message in str(caught.value)
    assert len(live_data_files(table)) == 6


def test_partial_progress(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=("category",))
    for each in range(2):
        for category in "abcdef":
            append(table, rows(each, category=category))
    before = lineage(table)
    options = {**ALL, "partial-progress.enabled": "true", "partial-progress.max-commits": "3"}
    done = compact(table, options=options)
    assert (len(done.groups), len(done.snapshots), done.rewritten.files) == (6, 3, 12)
    assert lineage(table) == before
    assert [snapshot.operation for snapshot in table.snapshots[-3:]] == ["replace"] * 3
    check_table(table, files_exist=True)


def test_progress_by_file(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    many(table)
    seen: list[tuple[str, int, int | None]] = []
    rewrite_data_files(table, CompactSettings(), lambda *step: seen.append(step))
    assert seen == [("rewrite data files", done, 6) for done in range(7)]


def test_deletes_by_key_after_it_apply(tmp_path: Path) -> None:
    """Also where the compaction began before them, and no old data file is left."""
    table = make_table(tmp_path / "t", format_version=2)
    many(table, 3)
    stream = LocalUpserts(table.location, key=["id"], delete_mode="equality")

    def delete(*gone: int) -> None:
        kinds = pa.array([RowKind.DELETE] * len(gone), pa.int8())
        stream.checkpoint(pa.table({"id": gone, "category": [""] * len(gone), ROW_KIND: kinds}))

    done = compact(table, lambda: delete(3, 4))
    assert done.snapshots
    assert ids_of(table) == [each for each in range(30) if each not in (3, 4)]
    delete(5)
    assert ids_of(table.refresh()) == [each for each in range(30) if each not in (3, 4, 5)]
    options = {**ALL, "use-starting-sequence-number": "false"}
    done = compact(table, lambda: delete(6), options=options)
    assert (done.given_up, done.snapshots) == (1, ())
    assert ids_of(table.refresh()) == [each for each in range(30) if each not in (3, 4, 5, 6)]
    compact(table, options=options)
    assert [entry.sequence_number for entry in live_entries(table)] == [table.metadata.last_sequence_number]


KILLED = """
import sys
from streamlake import failpoints
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import rewrite_data_files
from streamlake.tables import load_table
from tests.helpers.row_deltas import row_delta

location, place = sys.argv[1:]

def delete(producer, groups):
    row_delta(load_table(location).table, {13}).commit()
    failpoints.arm(place + "=kill")

if place.startswith(("data-file", "file-group")):
    failpoints.arm(place + "=kill")
settings = CompactSettings(options={"rewrite-all": "true"})
rewrite_data_files(load_table(location).table, settings, before_commit=delete)
"""


@pytest.mark.parametrize(
    "place",
    [
        "data-file-closed",
        "file-group-rewritten",
        "file-groups-rewritten",
        "deletes-carried-over",
        "after-swap",
    ],
)
def test_a_kill_leaves_orphans_alone(tmp_path: Path, place: str) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    many(table)
    row_delta(table, {3}).commit()
    command = [sys.executable, "-c", KILLED, table.location, place]
    killed = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    gone = {3, 13} if place in ("deletes-carried-over", "after-swap") else {3}
    expected = [each for each in range(60) if each not in gone]
    fresh = load_table(table.location)
    assert ids_of(fresh.table) == expected
    check_table(fresh.table, files_exist=True)
    assert diagnose(table.location).is_healthy
    # Old files stay for the older snapshots; only what the attempt wrote is an orphan, if it was not committed.
    for path in Path(table.location).rglob("*.*"):
        os.utime(path, (0, 0))
    found = remove_orphans(fresh.table, dry_run=True).orphans
    written = [each.path for each in found if "/data/" in each.path]
    if place == "after-swap":
        assert written == []
    else:
        assert len(written) == (2 if place == "deletes-carried-over" else 1)
    compact(fresh.table)
    assert ids_of(fresh.table) == expected
    assert len(live_data_files(fresh.table)) == 1
