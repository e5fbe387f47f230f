from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.catalog.open import open_table
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    ConflictValidationError,
    DataInvalidError,
    FencedError,
    StorageError,
    TableNotFoundError,
)
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.options import RetryOptions
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from streamlake.table.updates.retries import wait_seconds
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table
from tests.helpers.tables import FaultyOperations, data_file, make_table, metadata_files, stage


def others_commit(location: Path, times: int) -> Callable[[], None]:
    """A hook that lets another writer commit before each of the first `times` swaps."""
    left = [times]

    def hook() -> None:
        if left[0]:
            left[0] -= 1
            other = open_table(str(location))
            AppendFiles(other).append_file(data_file(other, records=1)).commit()

    return hook


def faulty(table: Table, **hooks: Callable[[], None]) -> tuple[Table, FaultyOperations]:
    operations = FaultyOperations(table.operations, **hooks)
    return Table(table.name, operations), operations


def lost_response() -> None:
    raise CommitStateUnknownError("the connection broke")


def test_a_conflict_is_retried_on_the_new_version(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    mine, operations = faulty(table, before_swap=others_commit(tmp_path, 3))
    append = AppendFiles(mine)
    append.append_file(data_file(table, records=100))
    append.append_manifest(stage(table, data_file(table, records=1000)))
    snapshot = append.commit()
    assert operations.attempts == 4
    assert snapshot.sequence_number == 4
    assert snapshot.summary["total-records"] == "1103"
    check_table(open_table(str(tmp_path)))
    names = metadata_files(table)
    assert len([name for name in names if name.startswith("snap-")]) == 4, (
        "lists of failed attempts are removed"
    )
    manifests = [name for name in names if "-m" in name]
    assert len(manifests) == 5, "the data manifest was written once, not once per attempt"


def test_retries_end_and_leave_only_what_was_handed_in(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"commit.retry.num-retries": "2"})
    mine, operations = faulty(table, before_swap=others_commit(tmp_path, 99))
    staged = stage(table, data_file(table))
    append = AppendFiles(mine).append_file(data_file(table)).append_manifest(staged)
    with pytest.raises(CommitConflictError, match=r"commit\.retry\.num-retries"):
        append.commit()
    assert operations.attempts == 3
    assert Path(staged.manifest_path).exists()
    names = metadata_files(table)
    assert len([name for name in names if name.startswith("snap-")]) == 3
    assert len([name for name in names if "-m" in name]) == 3 + 1
    assert len(open_table(str(tmp_path)).snapshots) == 3


def test_a_lost_response_of_a_commit_that_arrived_is_a_success(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    mine, operations = faulty(table, after_swap=lost_response)
    staged = stage(table, data_file(table, records=5))
    snapshot = AppendFiles(mine).append_file(data_file(table, records=3)).append_manifest(staged).commit()
    assert operations.attempts == 1, "an unknown outcome is not tried again"
    fresh = open_table(str(tmp_path))
    assert [entry.snapshot_id for entry in fresh.snapshots] == [snapshot.snapshot_id]
    assert snapshot.summary["total-records"] == "8"
    check_table(fresh)


def test_a_lost_response_is_found_below_others_commits(tmp_path: Path) -> None:
    table = make_table(tmp_path)

    def others_then_loss() -> None:
        others_commit(tmp_path, 1)()
        others_commit(tmp_path, 1)()
        lost_response()

    mine, _ = faulty(table, after_swap=others_then_loss)
    snapshot = AppendFiles(mine).append_file(data_file(table)).commit()
    fresh = open_table(str(tmp_path))
    assert [entry.snapshot_id for entry in fresh.snapshots].index(snapshot.snapshot_id) == 0
    assert len(fresh.snapshots) == 3
    check_table(fresh)


def test_an_unknown_outcome_that_stays_unknown_deletes_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    mine, operations = faulty(table, before_swap=lost_response)
    append = AppendFiles(mine).append_file(data_file(table)).append_manifest(stage(table, data_file(table)))
    with pytest.raises(CommitStateUnknownError, match="may still arrive"):
        append.commit()
    assert operations.attempts == 1
    names = metadata_files(table)
    assert len([name for name in names if name.startswith("snap-")]) == 1
    assert len([name for name in names if "-m" in name]) == 2


def test_a_surprise_from_the_catalog_counts_as_unknown(tmp_path: Path) -> None:
    table = make_table(tmp_path)

    def crash() -> None:
        raise ZeroDivisionError("inside the client library")

    mine, _ = faulty(table, after_swap=crash)
    assert AppendFiles(mine).append_file(data_file(table)).commit().summary["total-data-files"] == "1"
    mine, _ = faulty(table, before_swap=crash)
    with pytest.raises(CommitStateUnknownError, match="ZeroDivisionError"):
        AppendFiles(mine).append_file(data_file(table)).commit()


def test_a_check_runs_on_each_base_and_its_error_ends_the_commit(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    mine, _ = faulty(table, before_swap=others_commit(tmp_path, 2))
    seen: list[int] = []

    def check(base: TableMetadata) -> None:
        seen.append(len(base.snapshots))
        if len(base.snapshots) == 2:
            raise FencedError("a newer driver is here")

    append = AppendFiles(mine).append_file(data_file(table))
    append.add_check(check)
    before = metadata_files(table)
    with pytest.raises(FencedError):
        append.commit()
    assert seen == [0, 1, 2]
    left = {name for name in metadata_files(table) - before if name.endswith(".avro")}
    assert len(left) == 4, "only the two manifests and lists of the others"


def test_properties_and_snapshot_arrive_together_or_not_at_all(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"commit.retry.num-retries": "0"})
    mine, _ = faulty(table, before_swap=others_commit(tmp_path, 1))
    append = AppendFiles(mine).append_file(data_file(table))
    append.set_properties({"marker": "1"})
    with pytest.raises(CommitConflictError):
        append.commit()
    assert "marker" not in open_table(str(tmp_path)).properties


READ_ONLY = """
import os, sys
from streamlake.catalog.open import open_table
from streamlake.errors import StorageError
from streamlake.table.producers.append_files import AppendFiles
from tests.helpers.tables import data_file
table = open_table(sys.argv[1])
append = AppendFiles(table).append_file(data_file(table))
if os.geteuid() == 0:
    os.setuid(65534)
try:
    append.commit()
except StorageError as error:
    print(error)
"""


def test_a_read_only_warehouse_is_a_storage_error() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        table = make_table(Path(directory, "t"))
        metadata = Path(table.location, "metadata")
        before = metadata_files(table)
        metadata.chmod(0o555)
        told = subprocess.run(
            [sys.executable, "-c", READ_ONLY, table.location], capture_output=True, text=True, check=False
        )
        metadata.chmod(0o755)
        assert "permission denied" in told.stdout, told.stderr
        assert metadata_files(table) == before
        AppendFiles(table).append_file(data_file(table)).commit()


def test_a_full_disk_is_a_storage_error_and_the_next_commit_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)

    def full(self: object, path: str, data: bytes) -> None:
        raise StorageError(f"writing {path}: no space left")

    before = metadata_files(table)
    with monkeypatch.context() as patch:
        patch.setattr(type(table.io), "create_exclusive", full)
        with pytest.raises(StorageError, match="no space"):
            AppendFiles(table).append_file(data_file(table)).commit()
    assert metadata_files(table) == before, "certainly not committed: own files are removed"
    AppendFiles(table).append_file(data_file(table)).commit()
    check_table(table)


def test_a_failed_clean_up_does_not_fail_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path)
    mine, _ = faulty(table, before_swap=others_commit(tmp_path, 1))

    def stuck(self: object, path: str) -> None:
        raise StorageError(f"deleting {path}: permission denied")

    monkeypatch.setattr(type(table.io), "delete", stuck)
    AppendFiles(mine).append_file(data_file(table)).commit()
    check_table(open_table(str(tmp_path)))


@pytest.mark.parametrize("commits", [0, 1])
def test_a_table_that_was_replaced_is_not_written(tmp_path: Path, commits: int) -> None:
    table = make_table(tmp_path / "t")
    for _ in range(commits):
        AppendFiles(table).append_file(data_file(table)).commit()
    rmtree(tmp_path / "t")
    again = make_table(tmp_path / "t")
    assert again.uuid != table.uuid
    with pytest.raises(DataInvalidError, match="another table"):
        AppendFiles(table).append_file(data_file(table)).commit()
    assert open_table(str(tmp_path / "t")).snapshots == ()


def test_property_updates_retry_and_survive_lost_responses(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    mine, operations = faulty(table, before_swap=others_commit(tmp_path, 1))
    UpdateProperties(mine).set("a", "1").remove("absent").commit()
    assert operations.attempts == 2
    mine, _ = faulty(table, after_swap=lost_response)
    UpdateProperties(mine).set("b", "2").commit()
    mine, _ = faulty(table, before_swap=lost_response)
    with pytest.raises(CommitStateUnknownError):
        UpdateProperties(mine).set("c", "3").commit()
    properties = open_table(str(tmp_path)).properties
    assert (properties["a"], properties["b"], "c" in properties) == ("1", "2", False)
    version = len(metadata_files(table))
    UpdateProperties(table).set("a", "1").commit()
    assert len(metadata_files(table)) == version, "nothing to do, nothing committed"


def test_waits_double_up_to_the_cap_with_jitter() -> None:
    options = RetryOptions(9, 100, 1_000, 60_000)
    for failures, ceiling in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (500, 1.0)):
        waits = {wait_seconds(options, failures) for _ in range(50)}
        assert ceiling / 2 <= min(waits) < max(waits) <= ceiling


def test_conflict_validation_is_not_retried(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    mine, operations = faulty(table)
    append = AppendFiles(mine).append_file(data_file(table))

    def refuse(base: TableMetadata) -> None:
        raise ConflictValidationError("no")

    append.add_check(refuse)
    with pytest.raises(ConflictValidationError):
        append.commit()
    assert operations.attempts == 0


def test_a_conflict_that_was_none_neither_commits_twice_nor_cleans_up(tmp_path: Path) -> None:
    """A catalog client that repeats a request on its own is told of a conflict with its own first one."""
    table = make_table(tmp_path)
    left = [1]

    def conflict() -> None:
        if left[0]:
            left[0] -= 1
            raise CommitConflictError("the reference has changed")

    mine, operations = faulty(table, after_swap=conflict)

    def refuse_after_the_first(metadata: TableMetadata) -> None:
        if metadata.snapshots:
            raise FencedError("the checkpoint is there already")

    append = AppendFiles(mine)
    append.append_file(data_file(table))
    append.add_check(refuse_after_the_first)
    snapshot = append.commit()
    assert operations.attempts == 1
    fresh = open_table(str(tmp_path))
    assert [part.snapshot_id for part in fresh.snapshots] == [snapshot.snapshot_id]
    check_table(fresh)


def test_the_last_conflict_may_be_none_as_well(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"commit.retry.num-retries": "0"})

    def conflict() -> None:
        raise CommitConflictError("the reference has changed")

    mine, _ = faulty(table, after_swap=conflict)
    snapshot = AppendFiles(mine).append_file(data_file(table)).commit()
    fresh = open_table(str(tmp_path))
    assert fresh.current_snapshot == snapshot
    check_table(fresh)


def test_nothing_is_cleaned_up_when_the_table_cannot_be_read_after_the_last_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, properties={"commit.retry.num-retries": "0"})
    mine, operations = faulty(table)

    def conflict() -> None:
        monkeypatch.setattr(operations, "refresh", unreadable)
        raise CommitConflictError("the reference has changed")

    def unreadable() -> TableMetadata:
        raise StorageError("the network is down")

    operations.after_swap = conflict
    with pytest.raises(CommitConflictError):
        AppendFiles(mine).append_file(data_file(table)).commit()
    fresh = open_table(str(tmp_path))
    assert len(fresh.snapshots) == 1
    check_table(fresh)


def test_a_table_that_is_dropped_during_the_swap_does_not_come_back(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    AppendFiles(table).append_file(data_file(table)).commit()
    mine, _ = faulty(table, before_swap=lambda: rmtree(tmp_path / "t"))
    with pytest.raises(TableNotFoundError, match="dropped"):
        AppendFiles(mine).append_file(data_file(table)).commit()
    with pytest.raises(TableNotFoundError):
        open_table(str(tmp_path / "t"))


@pytest.mark.parametrize("commits", [0, 1])
def test_a_table_that_is_replaced_during_the_swap_is_not_written(tmp_path: Path, commits: int) -> None:
    table = make_table(tmp_path / "t")
    for _ in range(commits):
        AppendFiles(table).append_file(data_file(table)).commit()

    def replace_table() -> None:
        rmtree(tmp_path / "t")
        make_table(tmp_path / "t")

    mine, _ = faulty(table, before_swap=replace_table)
    with pytest.raises((TableNotFoundError, DataInvalidError), match="dropped"):
        AppendFiles(mine).append_file(data_file(table)).commit()
    fresh = open_table(str(tmp_path / "t"))
    assert fresh.uuid != table.uuid
    assert fresh.snapshots == ()
    AppendFiles(fresh).append_file(data_file(fresh)).commit()
    check_table(open_table(str(tmp_path / "t")))


def test_trouble_after_the_version_was_written_is_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is there, so nothing that it refers to may be deleted."""
    table = make_table(tmp_path)

    def broken(self: object, seen: object, created: object) -> None:
        monkeypatch.undo()
        raise StorageError("input/output error")

    monkeypatch.setattr(HadoopTableOperations, "_require_successor", broken)
    snapshot = AppendFiles(table).append_file(data_file(table)).commit()
    fresh = open_table(str(tmp_path))
    assert fresh.current_snapshot == snapshot
    check_table(fresh)
