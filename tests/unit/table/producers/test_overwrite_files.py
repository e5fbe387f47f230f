from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import ConflictValidationError, DataInvalidError, InvalidOptionError
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.tables import FaultyOperations, data_file, delete_file, make_table, metadata_files, stage


def append(table: Table, *files: DataFile) -> int:
    operation = AppendFiles(table)
    for file in files:
        operation.append_file(file)
    return operation.commit().snapshot_id


def names(table: Table) -> list[str]:
    return sorted(Path(file.file_path).stem for file in live_data_files(table))


@pytest.mark.parametrize("format_version", [2, 3])
def test_files_of_a_partition_are_replaced(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=format_version)
    append(table, data_file(table, "a", name="a1"), data_file(table, "b", name="b1"))
    append(table, data_file(table, "a", name="a2"))
    append(table, data_file(table, "c", name="c1"))
    overwrite = OverwriteFiles(table).overwrite_by_filter("category = 'a'")
    snapshot = overwrite.add_file(data_file(table, "a", name="a3", records=1)).commit()
    assert names(table) == ["a3", "b1", "c1"]
    summary = snapshot.summary
    assert summary["operation"] == "overwrite"
    assert (summary["deleted-data-files"], summary["deleted-records"]) == ("2", "20")
    assert summary["removed-files-size"] == "2000"
    assert (summary["total-data-files"], summary["total-records"]) == ("3", "21")
    assert summary["changed-partition-count"] == "1"
    assert summary["manifests-replaced"] == "2"
    check_table(open_table(str(tmp_path)))


def test_kept_entries_keep_their_sequence_numbers(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    first = append(table, data_file(table, "a", name="a1"), data_file(table, "b", name="b1"))
    OverwriteFiles(table).overwrite_by_filter("category = 'a'").commit()
    (entry,) = live_entries(open_table(str(tmp_path)))
    assert (entry.status, entry.sequence_number, entry.snapshot_id) == (EntryStatus.EXISTING, 1, first)


def test_an_unpartitioned_table_is_overwritten_whole(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, data_file(table, name="old"), data_file(table, name="empty", records=0))
    staged = stage(table, data_file(table, name="new"))
    snapshot = OverwriteFiles(table).overwrite_by_filter("true").append_manifest(staged).commit()
    assert names(table) == ["new"]
    assert snapshot.summary["deleted-data-files"] == "2"
    check_table(table)


def test_the_operation_names_what_was_done(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert OverwriteFiles(table).add_file(data_file(table)).commit().operation == "append"
    assert OverwriteFiles(table).overwrite_by_filter("true").commit().operation == "delete"
    both = OverwriteFiles(table).overwrite_by_filter("true").add_file(data_file(table))
    assert both.commit().operation == "overwrite"
    check_table(table)


def test_metrics_prove_that_a_whole_file_matches(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(
        table,
        data_file(table, name="low", bounds={"id": (1, 9)}),
        data_file(table, name="high", bounds={"id": (10, 20)}),
    )
    OverwriteFiles(table).overwrite_by_filter("id >= 10").commit()
    assert names(table) == ["low"]
    before = metadata_files(table)
    with pytest.raises(ConflictValidationError, match="some but not all rows"):
        OverwriteFiles(table).overwrite_by_filter("id > 5").commit()
    assert metadata_files(table) == before
    assert names(table) == ["low"]


def test_a_filter_on_an_unknown_column_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="categroy"):
        OverwriteFiles(make_table(tmp_path)).overwrite_by_filter("categroy = 'a'")


def test_files_of_older_specs_are_matched_under_their_own_spec(tmp_path: Path) -> None:
    table = make_table(tmp_path, ddl="id long, category string", partition_by=("category",))
    append(table, data_file(table, "a", name="old-a"), data_file(table, "b", name="old-b"))
    base = table.metadata
    evolved = replace(parse_partition_by(["bucket(4, id)"], table.schema), spec_id=1)
    evolved = replace(evolved, fields=(replace(evolved.fields[0], field_id=1001),))
    new = replace(base, specs=(*base.specs, evolved), default_spec_id=1, last_partition_id=1001)
    table.operations.commit(base, new)
    append(table, data_file(table, 2, name="new-a", bounds={"category": ("a", "a")}))
    append(table, data_file(table, 2, name="new-b", bounds={"category": ("b", "b")}))
    OverwriteFiles(table).overwrite_by_filter("category = 'a'").commit()
    assert names(table) == ["new-b", "old-b"]
    check_table(open_table(str(tmp_path)))


def test_named_files_are_replaced(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    one, two = data_file(table, "a", name="one"), data_file(table, "b", name="two")
    append(table, one, two)
    OverwriteFiles(table).delete_file(one).add_file(data_file(table, "a", name="three")).commit()
    assert names(table) == ["three", "two"]
    check_table(table)
    with pytest.raises(ConflictValidationError, match="no longer in the table"):
        OverwriteFiles(table).delete_file(one).validate_no_conflicting_deletes().commit()


def test_serializable_isolation_refuses_new_data_in_scope(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    start = append(table, data_file(table, "a", name="a1"))
    other = open_table(str(tmp_path))
    append(other, data_file(other, "b", name="b1"))

    def overwrite(level: str) -> OverwriteFiles:
        operation = OverwriteFiles(table).overwrite_by_filter("category = 'a'").isolation(level, start)
        return operation.add_file(data_file(table, "a"))

    overwrite("serializable").commit()
    start = table.metadata.current_snapshot_id or 0
    other.refresh()
    append(other, data_file(other, "a", name="a2"))
    with pytest.raises(ConflictValidationError, match=r"a2\.parquet"):
        overwrite("serializable").commit()
    overwrite("snapshot").commit()
    assert "a2" not in names(table)
    with pytest.raises(InvalidOptionError, match="read-committed"):
        overwrite("read-committed")
    check_table(table)


def test_a_conflict_that_appears_between_attempts_is_seen(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    start = append(table, data_file(table, "a", name="a1"))

    def race() -> None:
        other = open_table(str(tmp_path))
        append(other, data_file(other, "a", name="raced"))

    mine = Table(table.name, FaultyOperations(table.operations, before_swap=race))
    overwrite = OverwriteFiles(mine).overwrite_by_filter("category = 'a'").isolation("serializable", start)
    with pytest.raises(ConflictValidationError, match="raced"):
        overwrite.commit()
    assert names(open_table(str(tmp_path))) == ["a1", "raced"]
    check_table(open_table(str(tmp_path)))


def test_snapshot_isolation_refuses_lost_deletes_and_removed_files(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    one, two = data_file(table, "a", name="one"), data_file(table, "b", name="two")
    start = append(table, one, two)
    other = open_table(str(tmp_path))
    RowDelta(other).add_deletes(delete_file(other, one)).commit()
    with pytest.raises(ConflictValidationError, match="deleted rows"):
        OverwriteFiles(table).overwrite_by_filter("category = 'a'").isolation("snapshot", start).commit()
    with pytest.raises(ConflictValidationError, match="are to be replaced"):
        OverwriteFiles(table).delete_file(one).isolation("snapshot", start).commit()
    OverwriteFiles(table).delete_file(two).isolation("snapshot", start).commit()
    with pytest.raises(ConflictValidationError, match="removed data"):
        OverwriteFiles(table).overwrite_by_filter("category = 'b'").isolation("snapshot", start).commit()
    check_table(open_table(str(tmp_path)))


def test_history_that_is_gone_is_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, data_file(table))
    overwrite = OverwriteFiles(table).overwrite_by_filter("true").isolation("snapshot", 12345)
    with pytest.raises(ConflictValidationError, match="12345"):
        overwrite.commit()


def test_validation_from_an_empty_table(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    OverwriteFiles(table).overwrite_by_filter("true").isolation("serializable", None).commit()
    append(table, data_file(table))
    with pytest.raises(ConflictValidationError, match="added data"):
        OverwriteFiles(table).overwrite_by_filter("true").isolation("serializable", None).commit()


def test_only_conflicts_in_the_filter_count(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    one = data_file(table, "a", name="one")
    start = append(table, one)
    append(open_table(str(tmp_path)), data_file(table, "b"))

    def replace_one() -> OverwriteFiles:
        return OverwriteFiles(table).delete_file(one).isolation("serializable", start)

    with pytest.raises(ConflictValidationError, match="added data"):
        replace_one().commit()
    replace_one().conflict_detection_filter("category = 'a'").commit()


def test_added_files_must_match_the_filter_when_asked(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))

    def overwrite(file: DataFile) -> OverwriteFiles:
        operation = (
            OverwriteFiles(table).overwrite_by_filter("category = 'a'").validate_added_files_match_filter()
        )
        return operation.add_file(file)

    overwrite(data_file(table, "a")).commit()
    with pytest.raises(DataInvalidError, match="may hold rows that do not match"):
        overwrite(data_file(table, "b")).commit()


@pytest.mark.parametrize("dv", [False, True])
def test_deletes_of_a_removed_file_go_with_it(tmp_path: Path, dv: bool) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=3 if dv else 2)
    one, two = data_file(table, "a", name="one"), data_file(table, "b", name="two")
    append(table, one, two)
    RowDelta(table).add_deletes(delete_file(table, one, "d1", dv=dv)).add_deletes(
        delete_file(table, two, "d2", dv=dv)
    ).commit()
    assert (table.current_snapshot or pytest.fail("no snapshot")).summary["total-delete-files"] == "2"
    snapshot = OverwriteFiles(table).overwrite_by_filter("category = 'a'").commit()
    assert snapshot.summary["removed-delete-files"] == "1"
    assert snapshot.summary["total-position-deletes"] == "2"
    assert snapshot.summary.get("removed-dvs") == ("1" if dv else None)
    assert [
        entry.data_file.referenced_data_file for entry in live_entries(table) if not entry.data_file.is_data
    ] == [two.file_path]
    check_table(open_table(str(tmp_path)))
    OverwriteFiles(table).delete_file(two).commit()
    assert live_entries(table) == []
    check_table(table)


def test_manifests_without_live_files_leave_the_list(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, data_file(table))
    gone = OverwriteFiles(table).overwrite_by_filter("true").commit()
    assert [part.content for part in table.manifests(gone)] == [ManifestContent.DATA]
    append(table, data_file(table))
    assert len(table.manifests(table.current_snapshot)) == 1
    check_table(table)


def test_a_file_listed_twice_by_another_writer_is_removed_twice_and_counted_once(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    file = data_file(table, name="twice")
    append(table, file)
    append(table, file)
    snapshot = OverwriteFiles(table).delete_file(file).commit()
    assert snapshot.summary["deleted-data-files"] == "1"
    assert snapshot.summary["deleted-duplicate-files"] == "1"
    assert live_data_files(table) == []
