from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import ConflictValidationError, InvalidOptionError
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.updates.manage_refs import ManageRefs
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.tables import data_file, make_table


def test_a_commit_to_a_branch_leaves_main_alone(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    first = AppendFiles(table).append_file(data_file(table, records=1)).commit()
    audit = AppendFiles(table, branch="audit").append_file(data_file(table, records=2)).commit()
    assert audit.parent_snapshot_id == first.snapshot_id, "a new branch starts at main's head"
    assert audit.summary["total-records"] == "3"
    assert table.metadata.current_snapshot_id == first.snapshot_id
    assert [entry.snapshot_id for entry in table.metadata.snapshot_log] == [first.snapshot_id]
    assert table.refs["audit"].snapshot_id == audit.snapshot_id
    second = AppendFiles(table).append_file(data_file(table, records=4)).commit()
    assert second.parent_snapshot_id == first.snapshot_id
    again = AppendFiles(table, branch="audit").append_file(data_file(table, records=8)).commit()
    assert again.parent_snapshot_id == audit.snapshot_id
    assert [snapshot.sequence_number for snapshot in table.snapshots] == [1, 2, 3, 4]
    assert again.summary["total-records"] == "11"
    assert second.summary["total-records"] == "5"
    check_table(open_table(str(tmp_path)))


def test_a_branch_of_an_empty_table_starts_empty(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    snapshot = AppendFiles(table, branch="dev").append_file(data_file(table)).commit()
    assert snapshot.parent_snapshot_id is None
    assert table.current_snapshot is None
    assert list(table.refs) == ["dev"]
    check_table(open_table(str(tmp_path)))
    AppendFiles(table).append_file(data_file(table)).commit()
    check_table(open_table(str(tmp_path)))


def test_an_overwrite_on_a_branch_sees_the_branch(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    AppendFiles(table).append_file(data_file(table, records=1)).commit()
    AppendFiles(table, branch="dev").append_file(data_file(table, records=2)).commit()
    snapshot = OverwriteFiles(table, branch="dev").overwrite_by_filter("true").commit()
    assert snapshot.summary["deleted-records"] == "3"
    assert len(live_data_files(table)) == 1
    check_table(table)


def test_tags_and_branches_are_made_moved_and_removed(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    first = AppendFiles(table).append_file(data_file(table)).commit()
    second = AppendFiles(table).append_file(data_file(table)).commit()
    ManageRefs(table).create_tag("v1", first.snapshot_id, max_ref_age_ms=5).create_branch("dev").commit()
    fresh = open_table(str(tmp_path))
    assert fresh.refs["v1"].type == "tag"
    assert fresh.refs["v1"].max_ref_age_ms == 5
    assert fresh.refs["dev"].snapshot_id == second.snapshot_id
    assert fresh.snapshot_by(ref="v1") == first
    with pytest.raises(ConflictValidationError, match="already has a tag"):
        ManageRefs(table).create_tag("v1").commit()
    ManageRefs(table).set_branch("main", first.snapshot_id).commit()
    assert table.current_snapshot == first
    assert [entry.snapshot_id for entry in table.metadata.snapshot_log] == [
        first.snapshot_id,
        second.snapshot_id,
        first.snapshot_id,
    ]
    ManageRefs(table).remove("dev").remove("absent").commit()
    assert sorted(open_table(str(tmp_path)).refs) == ["main", "v1"]
    third = AppendFiles(table).append_file(data_file(table)).commit()
    assert third.parent_snapshot_id == first.snapshot_id
    assert third.sequence_number == 3
    check_table(table)


def test_refs_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    with pytest.raises(InvalidOptionError, match="is empty"):
        ManageRefs(table).create_tag("v1").commit()
    AppendFiles(table).append_file(data_file(table)).commit()
    ManageRefs(table).create_tag("v1").commit()
    with pytest.raises(InvalidOptionError, match="is a tag"):
        AppendFiles(table, branch="v1")
    with pytest.raises(InvalidOptionError, match="main"):
        ManageRefs(table).create_branch("main")
    with pytest.raises(InvalidOptionError, match="cannot be removed"):
        ManageRefs(table).remove("main").commit()
    with pytest.raises(ConflictValidationError, match="none such"):
        ManageRefs(table).create_tag("v2", 99).commit()
    with pytest.raises(InvalidOptionError, match="no branch 'dev'"):
        ManageRefs(table).set_branch("dev", 99).commit()
    check_table(table)


def test_snapshots_are_found_by_id_ref_and_time(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert table.snapshot_by() is None
    assert table.snapshot_by(ref="main") is None
    first = AppendFiles(table).append_file(data_file(table)).commit()
    second = AppendFiles(table).append_file(data_file(table)).commit()
    assert table.snapshot_by() == second
    assert table.snapshot_by(snapshot_id=first.snapshot_id) == first
    assert table.snapshot_by(as_of_ms=second.timestamp_ms) == second
    for wrong in ({"snapshot_id": 5}, {"ref": "nope"}, {"as_of_ms": first.timestamp_ms - 1}):
        with pytest.raises(InvalidOptionError, match="has no"):
            table.snapshot_by(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="not by several"):
        table.snapshot_by(snapshot_id=1, ref="main")
