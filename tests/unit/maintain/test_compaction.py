"""Compaction: the same rows in fewer files, whatever others commit meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.compact.compaction import Compaction, rewrite_data_files
from streamlake.maintain.compact.group_rewrite import RewrittenGroup
from streamlake.records import ROW_KIND
from streamlake.table.producers.rewrite_files import RewriteFiles
from streamlake.table.table import Table
from streamlake.tables import LoadedTable, load_table
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table, live_data_files, live_entries
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
