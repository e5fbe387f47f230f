"""Conversions of deletes beside streams: what they leave, and what streams, readers and other maintenance make of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from streamlake import clock, failpoints
from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable
from streamlake.cli.main import main
from streamlake.errors import CommitStateUnknownError, ConflictValidationError, InvalidOptionError
from streamlake.failpoints import FailpointError
from streamlake.maintain.deletes.delete_conversion import convert_deletes
from streamlake.maintain.expire import expire_snapshots
from streamlake.maintain.needed_files import staged_needs
from streamlake.maintain.orphans import remove_orphans
from streamlake.operate.doctor.diagnosis import diagnose
from streamlake.records import ROW_KIND
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry
from streamlake.table.producers.snapshot_producer import SnapshotContent
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import LoadedTable, load_table
from tests.helpers import foreign_writers
from tests.helpers.batch_write import append, write_files
from tests.helpers.change_history import ReplaceFiles
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.row_deltas import row_delta
from tests.helpers.tables import make_table
from tests.unit.maintain.test_delete_conversion import deletes, meanwhile, places, upgrade

UPSERT, DELETE = 2, 3


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def rows(*ids: int, category: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "category": pa.array([category] * len(ids))})


def changes(*ids: int, category: str = "a", kind: int = UPSERT) -> pa.Table:
    return rows(*ids, category=category).append_column(ROW_KIND, pa.array([kind] * len(ids), pa.int8()))


def stream(table: Table, delete_mode: str = "equality", **given: Any) -> LocalUpserts:
    return LocalUpserts(table.location, key=["id"], delete_mode=delete_mode, **given)


def contents(table: Table) -> list[tuple[Any, ...]]:
    found = load_table(table.location).scan(columns=["id", "category"]).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.fixture(params=[2, 3])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """An equality stream's: a key that is changed in every checkpoint, and one that is deleted."""
    table = make_table(tmp_path / "t", format_version=request.param)
    upserts = stream(table)
    upserts.checkpoint(changes(*range(20)))
    upserts.checkpoint(changes(1, 2, category="b"))
    upserts.checkpoint(changes(1, category="c"))
    upserts.checkpoint(changes(3, kind=DELETE))
    return table.refresh()


def test_a_plan_and_a_report(table: Table) -> None:
    before = contents(table)
    head = table.current_snapshot
    planned = load_table(table.location).convert_deletes(dry_run=True)
    assert table.refresh().current_snapshot == head
    assert (planned.dry_run, planned.added, planned.rows, planned.snapshot_id) == (True, None, None, None)
    done = load_table(table.location).convert_deletes()
    assert contents(table) == before
    # Of the keys in four checkpoints, the first one's have nothing before them.
    assert (done.equality_deletes, done.dangling) == (planned.equality_deletes, planned.dangling)
    assert (done.data_files, done.rows, done.kept) == (3, 4, 0)
    assert done.added == 3
    kind = "vector" if table.format_version == 3 else "own"
    assert deletes(table) == {kind: 3}
    head = table.current_snapshot
    assert head is not None
    assert (head.snapshot_id, head.operation) == (done.snapshot_id, "replace")
    assert head.summary["removed-equality-deletes"] == "24"
    assert head.summary["added-position-deletes"] == "4"
    assert head.summary["total-equality-deletes"] == "0"
    check_table(table, files_exist=True)
    assert diagnose(table.location).violations == ()


def test_new_deletes_have_the_sequence_number_of_the_old(table: Table) -> None:
    """A rewrite of the data files that has begun before need not fail: for it nothing new is deleted."""
    newest = table.metadata.last_sequence_number
    convert_deletes(table)
    table.refresh()
    numbers = {entry.sequence_number for entry in live_entries(table) if not entry.data_file.is_data}
    assert numbers
    assert max(number or 0 for number in numbers) <= newest


def test_a_stream_of_equality_deletes_goes_on(table: Table) -> None:
    upserts = stream(table)
    upserts.checkpoint_id = 4
    convert_deletes(table)

    def between(_: Committable) -> None:
        convert_deletes(open_table(table.location), {"rewrite-all": True})

    upserts.checkpoint(changes(1, 5, category="d"), between)
    convert_deletes(open_table(table.location))
    upserts.restart()
    upserts.checkpoint(changes(5, kind=DELETE))
    expected = [(each, "a") for each in range(20) if each not in (1, 2, 3, 5)] + [(1, "d"), (2, "b")]
    assert contents(table) == sorted(expected)
    done = convert_deletes(open_table(table.location))
    assert done.equality_deletes
    assert contents(table) == sorted(expected)
    check_table(table, files_exist=True)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_key_index_reads_nothing_again(version: int, restarts: bool, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=version)
    upserts = stream(table, "position")
    upserts.checkpoint(changes(*range(20)))
    upserts.checkpoint(changes(1, 2, category="b"))
    foreign_writers.delete_rows(table.location, {3, 4}, shared=True, column="id")
    upserts.checkpoint(changes(1, category="c"))
    upserts.run._index.rows_indexed()
    options = {"rewrite-all": True}
    assert convert_deletes(open_table(table.location), options).snapshot_id is not None
    if restarts:
        upserts.restart()

    def between(_: Committable) -> None:
        assert convert_deletes(open_table(table.location), options).snapshot_id is not None

    upserts.checkpoint(changes(1, 2, 5, category="d"), between)
    assert upserts.run._index.rows_indexed() == 0
    expected = [(each, "a") for each in range(20) if each not in (1, 2, 3, 4, 5)]
    assert contents(table) == sorted([*expected, (1, "d"), (2, "d"), (5, "d")])
    check_table(table, files_exist=True)


def test_a_vector_of_another_writer_is_merged(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    append(table, rows(*range(20)))
    row_delta(table, {0}).commit()
    stream(table).checkpoint(changes(1, 2, kind=DELETE))
    other = open_table(table.location)
    with meanwhile(lambda: row_delta(other, {2, 3}).commit() and None):
        done = convert_deletes(table)
    assert done.deletion_vectors == 1
    assert deletes(table) == {"vector": 1}
    assert [each for each, _ in contents(table)] == list(range(4, 20))
    check_table(table, files_exist=True)
    paths = {entry.data_file.file_path for entry in live_entries(table)}
    assert {str(path) for path in Path(table.location, "data").rglob("*.puffin")} >= paths & set()
    unused = [each for each in Path(table.location, "data").rglob("*.puffin") if str(each) not in paths]
    assert len(unused) == 2, "the ones of the two snapshots before; what the conversion did not use is gone"


def test_a_vector_that_has_it_all_stays(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    append(table, rows(*range(20)))
    stream(table).checkpoint(changes(1, 2, kind=DELETE))
    other = open_table(table.location)
    with meanwhile(lambda: convert_deletes(other) and None):
        done = convert_deletes(table)
    assert done.snapshot_id is None or done.added == 0
    assert deletes(table) == {"vector": 1}
    assert [each for each, _ in contents(table)] == [0, *range(3, 20)]


class OlderRows(ReplaceFiles):
    """A rewrite that keeps the data sequence number of what it began with, as Iceberg's does."""

    number = 0

    def content(self, base: Any, parent: Any, files: Any) -> SnapshotContent:
        made = super().content(base, parent, files)
        manifests = []
        for manifest in made.manifests:
            own = files.written_entries(manifest)
            if manifest.content == ManifestContent.DATA and any(e.status == EntryStatus.ADDED for e in own):
                entries = [
                    ManifestEntry(EntryStatus.ADDED, files.snapshot_id, self.number, None, each.data_file)
                    if each.status == EntryStatus.ADDED
                    else each
                    for each in own
                ]
                manifest = files.write(entries, manifest.partition_spec_id, manifest.content)
            manifests.append(manifest)
        return SnapshotContent(manifests, made.counts, made.replaced)


def test_equality_deletes_stay_for_older_rows_that_come_meanwhile(table: Table) -> None:
    """A compaction that began before the deletes commits its files while they are converted."""
    before = contents(table)
    other = open_table(table.location)
    first = [
        each.data_file for each in live_entries(other) if each.data_file.is_data and each.sequence_number == 1
    ]

    def compact() -> None:
        rewrite = OlderRows(other)
        rewrite.number = 1
        for file in first:
            rewrite.delete_file(file)
        for file in write_files(other, rows(*range(20))).data_files:
            rewrite.add_file(file)
        rewrite.commit()

    with meanwhile(compact):
        done = convert_deletes(table)
    assert done.kept == 3
    assert contents(table) == before
    check_table(table, files_exist=True)
    done = convert_deletes(table)
    assert (done.kept, done.equality_deletes) == (0, 3)
    assert contents(table) == before
    assert deletes(table)["equality"] == 0


def test_a_rollback_meanwhile(table: Table) -> None:
    ids = [each.snapshot_id for each in table.snapshots]

    def back() -> None:
        ManageRefs(open_table(table.location)).set_branch("main", ids[1]).commit()

    with meanwhile(back):
        convert_deletes(table)
    assert contents(table) == sorted(
        [*((each, "a") for each in range(20) if each not in (1, 2)), (1, "b"), (2, "b")]
    )


def test_others_that_are_always_faster(table: Table) -> None:
    before = contents(table)
    with (
        mock.patch(
            "streamlake.maintain.deletes.carried_replacement.CarriedReplacement.__call__",
            side_effect=ConflictValidationError("again"),
        ),
        pytest.raises(ConflictValidationError, match="again"),
    ):
        convert_deletes(table)
    assert contents(table) == before
    known = {entry.data_file.file_path for each in table.snapshots for entry in live_entries(table, each)}
    there = {str(each) for each in Path(table.location, "data").rglob("*.*") if each.suffix != ".crc"}
    assert there == known, "nothing is left of the attempts"


def test_an_upgrade_meanwhile(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    append(table, rows(*range(20)))
    stream(table).checkpoint(changes(1, 2, kind=DELETE))
    with meanwhile(lambda: upgrade(open_table(table.location))):
        convert_deletes(table)
    assert deletes(table) == {"vector": 1}
    assert [each for each, _ in contents(table)] == [0, *range(3, 20)]


def test_position_deletes_become_one_vector_after_an_upgrade(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=("category",))
    append(table, rows(*range(10)))
    append(table, rows(*range(10, 20), category="b"))
    for each in (1, 2, 11):
        foreign_writers.delete_rows(table.location, {each}, shared=True, column="id")
    foreign_writers.delete_rows(table.location, {3}, column="id")
    upgrade(table)
    before, had = places(load_table(table.location)), deletes(table)
    done = convert_deletes(table)
    assert (done.position_deletes, done.added, done.data_files, done.rows) == (sum(had.values()), 2, 2, 0)
    assert deletes(table) == {"vector": 2}
    assert [each[:2] for each in places(load_table(table.location))] == [each[:2] for each in before]


@pytest.mark.parametrize(
    ("granularity", "left"), [("file", {"own": 3}), ("partition", {"shared": 1, "own": 1})]
)
def test_position_deletes_are_merged(granularity: str, left: dict[str, int], tmp_path: Path) -> None:
    properties = {"write.delete.granularity": granularity}
    table = make_table(tmp_path / "t", partition_by=("category",), properties=properties)
    append(table, rows(*range(10)))
    append(table, rows(*range(10, 20)))
    append(table, rows(*range(20, 30), category="b"))
    for some in ({1, 11}, {2, 12}, {3, 13}, {21}, {22}, {23}, {24}, {25}):
        foreign_writers.delete_rows(table.location, some, shared=True, column="id")
    assert sum(deletes(table).values()) == 8
    assert convert_deletes(table, {"min-input-files": 6}).snapshot_id is None
    done = convert_deletes(table, {"min-input-files": 5})
    assert (done.position_deletes, done.added) == (5, 1), "category b alone has enough of them"
    done = convert_deletes(table, {"min-input-files": 3})
    assert (done.position_deletes, done.added) == (3, left.get("own", 0) - 1 or 1)
    assert deletes(table) == left
    assert [each for each, _ in contents(table)] == [
        each for each in range(30) if each not in (1, 2, 3, 11, 12, 13, 21, 22, 23, 24, 25)
    ]
    assert convert_deletes(table, {"min-input-files": 1}).snapshot_id is None or granularity == "partition"
    check_table(table, files_exist=True)


def test_some_partitions(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=("category",))
    upserts = LocalUpserts(table.location, key=["id", "category"], delete_mode="equality")
    for category in ("a", "b"):
        upserts.checkpoint(changes(*range(5), category=category))
        upserts.checkpoint(changes(1, category=category, kind=DELETE))
    before = contents(table)
    loaded = load_table(table.location)
    loaded.convert_deletes("category = 'a'")
    assert contents(table) == before
    left = [each.data_file for each in live_entries(table.refresh()) if not each.data_file.is_data]
    assert {each.partition for each in left if each.equality_ids} == {("b",)}
    assert {each.partition for each in left if not each.equality_ids} == {("a",)}


def test_wrong_options(table: Table) -> None:
    loaded = load_table(table.location)
    with pytest.raises(
        InvalidOptionError, match="unknown option 'min-input-file'; did you mean 'min-input-files'"
    ):
        loaded.convert_deletes(options={"min-input-file": 1})
    with pytest.raises(InvalidOptionError, match="min-input-files"):
        loaded.convert_deletes(options={"min-input-files": 0})
    with pytest.raises(InvalidOptionError, match="nosuch"):
        loaded.convert_deletes("nosuch = 1")


def test_a_branch(table: Table) -> None:
    ManageRefs(table).create_branch("side").commit()
    main = table.current_snapshot
    done = convert_deletes(table, branch="side")
    table.refresh()
    assert done.equality_deletes
    assert table.current_snapshot == main
    side = load_table(table.location).scan(columns=["id", "category"], ref="side").to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in side) == contents(table)


STOPS = [
    "deletes-planned",
    "delete-file-closed",
    "deletes-converted",
    "manifest-list-written",
    "before-swap",
    "after-swap",
]


@pytest.mark.parametrize("name", STOPS)
def test_a_stop_anywhere_loses_nothing(name: str, table: Table) -> None:
    before = contents(table)
    failpoints.arm(f"{name}=raise")
    with pytest.raises((FailpointError, CommitStateUnknownError)):
        convert_deletes(table)
    failpoints.arm("")
    fresh = open_table(table.location)
    assert contents(fresh) == before
    check_table(fresh, files_exist=True)
    assert diagnose(fresh.location).violations == ()
    convert_deletes(fresh)
    assert contents(fresh) == before
    assert deletes(fresh)["equality"] == 0
    check_table(fresh, files_exist=True)


def test_expiry_and_orphans_afterwards(table: Table) -> None:
    before = contents(table)
    keys = {each.data_file.file_path for each in live_entries(table) if each.data_file.equality_ids}
    convert_deletes(table)
    done = expire_snapshots(table, older_than_ms=clock.now_ms() + 1)
    staged = staged_needs(table)
    assert {each for each in keys if not staged.has(each)} == keys & set(done.files.in_order)
    assert contents(table) == before
    assert remove_orphans(table, dry_run=True).orphans == ()
    check_table(table, files_exist=True)


def test_readers_of_changes_see_nothing(table: Table) -> None:
    loaded = load_table(table.location)
    start = loaded.current_snapshot
    assert start is not None
    loaded.convert_deletes()
    loaded.refresh()
    assert loaded.scan_changes(start.snapshot_id).count() == 0
    row_delta(table, {7}).commit()
    stream_of_changes = loaded.refresh().scan_changes(start.snapshot_id).to_arrow().to_pylist()
    assert [(row["id"], row["_row_kind"]) for row in stream_of_changes] == [(7, "-D")]


def test_keys_are_read_a_part_at_a_time(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", format_version=3)
    append(table, rows(*range(100)))
    upserts = stream(table)
    for first in range(0, 60, 10):
        upserts.checkpoint(changes(*range(first, first + 10), kind=DELETE))
    with mock.patch("streamlake.maintain.deletes.keyed_positions.KEYS_AT_ONCE", 20):
        done = convert_deletes(table)
    assert done.rows == 60
    assert [each for each, _ in contents(table)] == list(range(60, 100))


def test_maintenance_converts_them(table: Table) -> None:
    before = contents(table)
    loaded: LoadedTable = load_table(table.location)
    done = loaded.maintain()
    assert done.deletes is not None
    assert done.deletes.equality_deletes
    assert contents(table) == before
    again = loaded.maintain(["deletes"])
    assert again.deletes is not None
    assert again.deletes.snapshot_id is None
    assert again.manifests is None


@pytest.mark.parametrize("name", ["delete-file-closed", "deletes-converted", "after-swap"])
def test_a_killed_process_loses_nothing(name: str, table: Table) -> None:
    before = contents(table)
    code = "import sys; from streamlake.tables import load_table; load_table(sys.argv[1]).convert_deletes()"
    environment = {**os.environ, "STREAMLAKE_FAILPOINTS": f"{name}=kill"}
    killed = subprocess.run([sys.executable, "-c", code, table.location], env=environment, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    fresh = open_table(table.location)
    assert contents(fresh) == before
    assert diagnose(fresh.location).violations == ()
    convert_deletes(fresh)
    assert contents(fresh) == before
    assert deletes(fresh)["equality"] == 0
    check_table(fresh, files_exist=True)


def test_the_command(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(table)

    def shown(*arguments: str) -> str:
        with pytest.raises(SystemExit) as exit_:
            main(["maintain", table.location, "--only", "deletes", *arguments])
        assert not exit_.value.code
        return " ".join(capsys.readouterr().out.split())

    assert json.loads(shown("--dry-run", "--json"))["deletes"]["added"] is None
    assert "would look at 3 data files to replace 5 equality delete files" in shown("--dry-run")
    assert "replaced 5 equality delete files" in shown()
    assert contents(table) == before
    assert "deletes nothing to do" in shown()
