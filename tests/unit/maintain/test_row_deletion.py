"""Rows are deleted by filter: what is gone, what stays, and which files were written for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlake import (
    ManageRefs,
    UpdatePartitionSpec,
    UpdateSchema,
    create_table,
    drop_table,
    failpoints,
    load_table,
)
from streamlake.errors import (
    CommitStateUnknownError,
    ConflictValidationError,
    InvalidOptionError,
    StorageError,
    TableNotFoundError,
)
from streamlake.maintain import row_deletion
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.producers.row_delta import RowDelta
from streamlake.tables import LoadedTable
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.tables import FAST_CHECKS

MODES = [(2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read")]
DDL = "id long, day string, v double"


def rows(ids: list[int], day: str | None = "a", v: float | None = 0.0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([day] * len(ids), pa.string()),
            "v": pa.array([v] * len(ids), pa.float64()),
        }
    )


def make(tmp_path: Path, version: int, mode: str, **more: Any) -> LoadedTable:
    properties = {"write.delete.mode": mode, **FAST_CHECKS}
    return create_table(tmp_path / "t", DDL, format_version=version, properties=properties, **more)


def ids_of(table: LoadedTable) -> list[int]:
    return sorted(load_table(table.location).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def files_on_disk(table: LoadedTable) -> set[str]:
    return {str(path) for path in Path(table.location, "data").rglob("*") if path.is_file()}


@pytest.mark.parametrize(("version", "mode"), MODES)
def test_whole_files_go_by_metadata_and_rows_of_others_by_the_tables_mode(
    tmp_path: Path, version: int, mode: str
) -> None:
    table = make(tmp_path, version, mode, partition_by=["day"])
    for day in "abc":
        append(table.table, rows(list(range(10)), day))
    before = files_on_disk(table)
    planned = table.delete("day = 'a' or (day = 'b' and id < 3)", dry_run=True)
    assert (planned.rows, planned.removed_files, planned.changed_files) == (13, 1, 1)
    assert planned.snapshot_id is None
    assert files_on_disk(table) == before
    done = table.delete("day = 'a' or (day = 'b' and id < 3)")
    assert (done.rows, done.removed_files, done.changed_files, done.added_files) == (13, 1, 1, 1)
    assert done.mode == mode
    assert ids_of(table) == sorted([*range(10), *range(3, 10)])
    found = load_table(table.location)
    snapshot = found.current_snapshot
    assert snapshot is not None
    assert snapshot.snapshot_id == done.snapshot_id
    kinds = [entry.data_file for entry in live_entries(found.table) if not entry.data_file.is_data]
    if mode == "copy-on-write":
        assert kinds == []
        assert snapshot.operation == "overwrite"
    else:
        assert [file.is_deletion_vector for file in kinds] == [version == 3]
        assert snapshot.operation == "delete"
    check_table(found.table, files_exist=True)


@pytest.mark.parametrize(("version", "mode"), MODES)
def test_only_rows_for_which_the_filter_is_true_go(tmp_path: Path, version: int, mode: str) -> None:
    table = make(tmp_path, version, mode)
    nan = float("nan")
    values = [1.0, None, nan, -1.0]
    append(
        table.table, pa.concat_tables([rows([n], None if n == 1 else "a", v) for n, v in enumerate(values)])
    )
    assert table.delete("v < 5").rows == 2  # NaN is the greatest value, null is neither
    assert ids_of(table) == [1, 2]
    assert table.delete("not (v = 7)").rows == 1
    assert ids_of(table) == [1]
    assert table.delete("day <> 'b'").rows == 0
    assert table.delete("v is null").removed_files == 1
    assert ids_of(table) == []
    check_table(load_table(table.location).table, files_exist=True)


@pytest.mark.parametrize(("version", "mode"), MODES)
def test_row_after_row_it_is_what_a_model_says(tmp_path: Path, version: int, mode: str) -> None:
    """Deletes of all kinds one after the other, over files of three schemas and two specs."""
    random.seed(version)
    table = make(tmp_path, version, mode)
    model: dict[int, float] = {}

    def add(ids: range, **columns: Any) -> None:
        values = [float(each % 7) for each in ids]
        more = {name: pa.array([value] * len(ids)) for name, value in columns.items()}
        data = {"id": pa.array(ids, pa.int64()), "day": pa.array([str(each % 3) for each in ids])}
        append(load_table(table.location).table, pa.table({**data, "v": pa.array(values), **more}))
        model.update(zip(ids, values, strict=True))

    add(range(100))
    UpdatePartitionSpec(table.table).add_field("day").commit()
    add(range(100, 200))
    UpdateSchema(load_table(table.location).table).add_column("n", "string").commit()
    add(range(200, 300), n="x")
    for _ in range(8):
        low, v = random.randrange(300), float(random.randrange(7))
        done = load_table(table.location).delete(f"id >= {low} and id < {low + 40} and v = {v}")
        gone = [each for each, value in model.items() if low <= each < low + 40 and value == v]
        assert done.rows == len(gone)
        for each in gone:
            del model[each]
        assert ids_of(table) == sorted(model)
        check_table(load_table(table.location).table, files_exist=True)
    assert load_table(table.location).delete("true").rows == len(model)
    assert live_data_files(load_table(table.location).table) == []


def test_equality_deletes_are_no_live_rows(tmp_path: Path) -> None:
    table = make(tmp_path, 2, "copy-on-write")
    append(table.table, rows([1, 2, 3]))
    # Written by hand: a file that deletes id 2.
    path = f"{table.location}/data/eq.parquet"
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table({"id": pa.array([2], pa.int64())}, schema=pa.schema([field])), path)
    file = DataFile(
        content=FileContent.EQUALITY_DELETES,
        file_path=path,
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=Path(path).stat().st_size,
        equality_ids=(1,),
    )
    RowDelta(table.table).add_deletes(file).commit()
    assert ids_of(table) == [1, 3]
    assert table.delete("id = 3 or id = 2").rows == 1
    assert ids_of(table) == [1]
    assert table.delete("id < 5").rows in (1, None)
    assert ids_of(table) == []


def test_rows_keep_their_identity_when_their_file_is_written_again(tmp_path: Path) -> None:
    table = make(tmp_path, 3, "copy-on-write", sort_by=["id desc"])
    append(table.table, rows([0, 1, 2, 3]))
    columns = ["id", "_row_id", "_last_updated_sequence_number"]
    before = {row["id"]: row for row in table.refresh().scan(columns=columns).to_arrow().to_pylist()}
    table.delete("id = 1")
    after = {row["id"]: row for row in table.refresh().scan(columns=columns).to_arrow().to_pylist()}
    assert after == {key: row for key, row in before.items() if key != 1}


def test_a_branch_of_its_own(tmp_path: Path) -> None:
    table = make(tmp_path, 2, "merge-on-read")
    append(table.table, rows([1, 2]))
    ManageRefs(table.table).create_branch("audit").commit()
    assert table.delete("id = 1", branch="audit").rows == 1
    assert ids_of(table) == [1, 2]
    assert load_table(table.location).scan(ref="audit").count() == 1


@pytest.mark.parametrize(("version", "mode"), MODES)
def test_a_commit_of_others_meanwhile_is_taken_into_account(
    tmp_path: Path, version: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer deletes a row and adds matching ones, between the plan and the commit."""
    table = make(tmp_path, version, mode)
    append(table.table, rows([1, 2, 3, 4]))
    left = [lambda: append(load_table(table.location).table, rows([1, 9]))]
    left.append(lambda: load_table(table.location).delete("id = 4"))

    def meanwhile(name: str) -> None:
        if name == "delete-written" and left:
            left.pop()()

    monkeypatch.setattr(row_deletion, "failpoint", meanwhile)
    done = table.delete("id <= 2")
    assert not left
    assert done.attempts > 1
    assert ids_of(table) == [3, 9]
    check_table(load_table(table.location).table, files_exist=True)
    referred = {
        file.file_path
        for snapshot in load_table(table.location).snapshots
        for file in (entry.data_file for entry in live_entries(table.refresh().table, snapshot))
    }
    assert files_on_disk(table) == referred


def test_with_snapshot_isolation_rows_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"write.delete.isolation-level": "snapshot", **FAST_CHECKS}
    table = create_table(tmp_path / "t", DDL, properties=properties)
    append(table.table, rows([1, 2]))
    left = [1]

    def meanwhile(name: str) -> None:
        if name == "delete-written" and left:
            left.clear()
            append(load_table(table.location).table, rows([1]))

    monkeypatch.setattr(row_deletion, "failpoint", meanwhile)
    assert table.delete("id = 1").attempts == 1
    assert ids_of(table) == [1, 2]


def test_who_is_always_faster_wins_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, 2, "copy-on-write")
    append(table.table, rows([1, 2]))

    def meanwhile(name: str) -> None:
        if name == "delete-written":
            append(load_table(table.location).table, rows([1]))

    monkeypatch.setattr(row_deletion, "failpoint", meanwhile)
    with pytest.raises(ConflictValidationError, match="nothing was deleted; gave up after"):
        table.delete("id = 1")
    assert 2 in ids_of(table)
    referred = {file.file_path for file in live_data_files(table.refresh().table)}
    assert files_on_disk(table) == referred


def test_files_stay_where_it_is_not_known_whether_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, 2, "copy-on-write")
    append(table.table, rows([1, 2]))
    before = files_on_disk(table)

    def unknown(*_: Any) -> Any:
        raise CommitStateUnknownError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(type(table.table.operations), "commit", unknown)
        with pytest.raises(CommitStateUnknownError):
            table.delete("id = 1")
        assert len(files_on_disk(table)) == len(before) + 1

    def refuse(*_: Any) -> Any:
        raise StorageError("certainly not")

    left = files_on_disk(table)
    with monkeypatch.context() as patched:
        patched.setattr(type(table.table.operations), "commit", refuse)
        with pytest.raises(StorageError):
            table.delete("id = 1")
    assert files_on_disk(table) == left


@pytest.mark.parametrize(
    ("match", "arguments"),
    [
        ("needs a filter", {"filter": " "}),
        ("idd", {"filter": "idd = 1"}),
        ("no branch 'none'", {"filter": "id = 1", "branch": "none"}),
        ("is a tag", {"filter": "id = 1", "branch": "t"}),
        ("copy-on-write, merge-on-read", {"filter": "id = 1", "mode": "quick"}),
        ("day", {"filter": "day = 5 and"}),
    ],
)
def test_wrong_arguments(tmp_path: Path, match: str, arguments: dict[str, str]) -> None:
    table = make(tmp_path, 2, "copy-on-write")
    append(table.table, rows([1]))
    ManageRefs(table.table).create_tag("t").commit()
    with pytest.raises(InvalidOptionError, match=match):
        table.delete(**arguments)
    assert ids_of(table) == [1]


def test_nothing_matches_or_the_table_is_empty(tmp_path: Path) -> None:
    table = make(tmp_path, 2, "copy-on-write")
    assert table.delete("id = 1").snapshot_id is None
    append(table.table, rows([1]))
    assert table.delete("id = 7").snapshot_id is None
    assert len(table.refresh().snapshots) == 1


def test_half_a_file_of_position_deletes_of_a_partition(tmp_path: Path) -> None:
    """Delete files that several data files share stay, and what they delete stays deleted."""
    properties = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    table = create_table(tmp_path / "t", DDL, properties=properties)
    for first in (0, 10):
        append(table.table, rows(list(range(first, first + 10))))
    table.delete("id in (1, 11)")
    table.delete("id in (2, 12)")
    table.delete("id < 5")
    assert ids_of(table) == [5, 6, 7, 8, 9, 10, *range(13, 20)]
    check_table(load_table(table.location).table, files_exist=True)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("point", ["delete-written", "before-swap", "after-swap", "before-clean-up"])
def test_an_interruption_anywhere_leaves_a_whole_table(tmp_path: Path, mode: str, point: str) -> None:
    table = make(tmp_path, 3, mode)
    append(table.table, rows([1, 2, 3]))
    before = files_on_disk(table)
    failpoints.arm(f"{point}=raise")
    try:
        with pytest.raises(BaseException, match=point):
            table.delete("id = 2")
    finally:
        failpoints.arm("")
    fresh = load_table(table.location)
    assert ids_of(fresh) == ([1, 2, 3] if len(fresh.snapshots) == 1 else [1, 3])
    assert (len(fresh.snapshots) == 1) == (point in ("delete-written", "before-swap"))
    check_table(fresh.table, files_exist=True)
    if point == "delete-written":
        assert files_on_disk(table) == before
    assert load_table(table.location).delete("id = 2").rows == (1 if len(fresh.snapshots) == 1 else 0)
    assert ids_of(fresh) == [1, 3]


def test_a_purge_that_is_interrupted_leaves_files_and_no_table(tmp_path: Path) -> None:
    table = make(tmp_path, 2, "copy-on-write")
    append(table.table, rows([1]))
    failpoints.arm("table-forgotten=raise")
    try:
        with pytest.raises(BaseException, match="table-forgotten"):
            drop_table(table.location, purge=True)
    finally:
        failpoints.arm("")
    assert files_on_disk(table)
    with pytest.raises(TableNotFoundError):
        load_table(table.location)
    make(tmp_path, 2, "copy-on-write")
