from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import (
    ConflictValidationError,
    DataInvalidError,
    HeadMovedError,
    InvalidOptionError,
)
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.tables import FaultyOperations, data_file, delete_file, make_table, metadata_files, stage

VERSIONS = pytest.mark.parametrize("format_version", [2, 3])


def append(table: Table, *files: DataFile) -> int:
    operation = AppendFiles(table)
    for file in files:
        operation.append_file(file)
    return operation.commit().snapshot_id


def live(table: Table) -> list[str]:
    """Names of live files, those of deletion vectors with their data file."""
    return sorted(Path(entry.data_file.file_path).stem for entry in live_entries(table.refresh()))


@VERSIONS
def test_rows_and_deletes_arrive_in_one_snapshot(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=format_version)
    old = data_file(table, "a", name="old")
    start = append(table, old)
    delta = RowDelta(table).validate_from_snapshot(start).validate_data_files_exist([old.file_path])
    snapshot = delta.add_rows(data_file(table, "b", name="new")).add_deletes(delete_file(table, old)).commit()
    vector = format_version >= 3
    assert snapshot.summary["operation"] == "overwrite"
    expected = {
        "added-delete-files": "1",
        "added-position-deletes": "2",
        "total-delete-files": "1",
        "total-position-deletes": "2",
        "total-equality-deletes": "0",
        "added-files-size": "1016" if vector else "1020",
        ("added-dvs" if vector else "added-position-delete-files"): "1",
    }
    assert {key: snapshot.summary.get(key) for key in expected} == expected
    assert live(table) == ["d", "new", "old"]
    (entry,) = [entry for entry in live_entries(table) if not entry.data_file.is_data]
    assert (entry.sequence_number, entry.file_sequence_number, entry.status) == (2, 2, EntryStatus.ADDED)
    check_table(open_table(str(tmp_path)))


def test_equality_deletes_are_counted_apart(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, data_file(table))
    delete = replace(
        data_file(table, records=3, name="e"), content=FileContent.EQUALITY_DELETES, equality_ids=(1,)
    )
    summary = RowDelta(table).add_rows(data_file(table)).add_deletes(delete).commit().summary
    assert (summary["added-equality-delete-files"], summary["added-equality-deletes"]) == ("1", "3")
    assert (summary["total-delete-files"], summary["total-equality-deletes"]) == ("1", "3")
    assert "added-position-deletes" not in summary
    check_table(table)
    with pytest.raises(DataInvalidError, match="equality ids"):
        RowDelta(table).add_deletes(replace(delete, equality_ids=None))


@VERSIONS
def test_the_operation_names_what_was_done(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, format_version=format_version)
    one, two = data_file(table, name="one"), data_file(table, name="two")
    first, second = delete_file(table, one, "d1"), delete_file(table, one, "d2")
    assert RowDelta(table).commit().operation == "append"
    assert RowDelta(table).add_rows(one).add_rows(two).commit().operation == "append"
    assert RowDelta(table).add_deletes(first).commit().operation == "delete"
    assert RowDelta(table).add_deletes(second).remove_deletes(first).commit().operation == "delete"
    assert RowDelta(table).add_rows(data_file(table)).remove_rows(two).commit().operation == "overwrite"
    assert RowDelta(table).add_rows(data_file(table)).remove_deletes(second).commit().operation == "overwrite"
    assert RowDelta(table).remove_rows(one).commit().operation == "overwrite"
    check_table(table)


@VERSIONS
def test_a_delete_file_is_replaced_by_a_newer_one(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, format_version=format_version)
    one = data_file(table, name="one")
    append(table, one)
    first, second = delete_file(table, one, "d1"), delete_file(table, one, "d2", records=5)
    start = RowDelta(table).add_deletes(first).commit().snapshot_id
    delta = RowDelta(table).require_head(start).remove_deletes(first).add_deletes(second)
    summary = delta.commit().summary
    assert live(table) == ["d2", "one"]
    assert (summary["removed-delete-files"], summary["removed-position-deletes"]) == ("1", "2")
    assert summary["removed-dvs" if format_version >= 3 else "removed-position-delete-files"] == "1"
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("1", "5")
    check_table(open_table(str(tmp_path)))


def test_vectors_of_one_puffin_file_are_told_apart(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    one, two = data_file(table, name="one"), data_file(table, name="two")
    append(table, one, two)
    first, second = delete_file(table, one, "p"), delete_file(table, two, "p", offset=99)
    RowDelta(table).add_deletes(first).add_deletes(second).commit()
    RowDelta(table).remove_deletes(first).add_deletes(delete_file(table, one, "q")).commit()
    left = {
        entry.data_file.identity for entry in live_entries(table.refresh()) if not entry.data_file.is_data
    }
    assert left == {second.identity, (delete_file(table, one, "q").file_path, 4)}
    check_table(table)


@VERSIONS
def test_deletes_of_a_removed_data_file_go_with_it(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=format_version)
    one, two = data_file(table, "a", name="one"), data_file(table, "b", name="two")
    append(table, one, two)
    RowDelta(table).add_deletes(delete_file(table, one, "d1")).commit()
    RowDelta(table).add_deletes(delete_file(table, two, "d2")).commit()
    summary = RowDelta(table).remove_rows(one).commit().summary
    assert live(table) == ["d2", "two"]
    assert (summary["deleted-data-files"], summary["removed-delete-files"]) == ("1", "1")
    check_table(open_table(str(tmp_path)))


def test_deletes_that_only_bounds_tie_to_a_data_file_go_with_it(tmp_path: Path) -> None:
    """Iceberg's writers of version 2 leave the reference out."""
    table = make_table(tmp_path)
    one, two = data_file(table, name="one"), data_file(table, name="two")
    start = append(table, one, two)
    for file in (one, two):
        path = {2147483546: file.file_path.encode()}
        delete = replace(delete_file(table, file, f"of-{Path(file.file_path).stem}"), lower_bounds=path)
        RowDelta(table).add_deletes(replace(delete, referenced_data_file=None, upper_bounds=path)).commit()
    with pytest.raises(ConflictValidationError, match="of-one"):
        OverwriteFiles(table).delete_file(one).isolation("snapshot", start).commit()
    RowDelta(table).remove_rows(one).commit()
    assert live(table) == ["of-two", "two"]
    check_table(table)


def test_manifests_of_other_partitions_are_not_read(tmp_path: Path) -> None:
    table = make_table(
        tmp_path,
        partition_by=("category",),
        format_version=3,
        properties={"commit.manifest-merge.enabled": "false"},
    )
    for category in "abcdef":
        file = data_file(table, category, name=category)
        append(table, file)
        RowDelta(table).add_deletes(delete_file(table, file, f"d{category}")).commit()
    summary = RowDelta(table).remove_rows(file).commit().summary
    assert summary["entries-processed"] == "2"
    vector = delete_file(table, data_file(table, "a", name="a"), "da")
    newer = delete_file(table, data_file(table, "a", name="a"), "newer")
    summary = RowDelta(table).remove_deletes(vector).add_deletes(newer).commit().summary
    assert summary["entries-processed"] == "1"


@VERSIONS
def test_what_is_removed_must_be_there(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, format_version=format_version)
    one = data_file(table, name="one")
    append(table, one)
    before = metadata_files(table)
    for delta in (
        RowDelta(table).remove_rows(data_file(table, name="gone")),
        RowDelta(table).remove_deletes(delete_file(table, one, "gone")),
        RowDelta(table).remove_deletes(delete_file(table, one, "gone")).add_deletes(delete_file(table, one)),
    ):
        with pytest.raises(ConflictValidationError, match="gone"):
            delta.commit()
    assert metadata_files(table) == before


def test_staged_manifests_of_both_contents_are_taken_up(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    one = data_file(table, name="one")
    append(table, one)
    data = stage(table, data_file(table, name="new"), uuid="11111111-1111-1111-1111-111111111111")
    deletes = stage(table, delete_file(table, one), uuid="22222222-2222-2222-2222-222222222222")
    assert (data.content, deletes.content) == (ManifestContent.DATA, ManifestContent.DELETES)
    snapshot = RowDelta(table).append_manifest(data).append_manifest(deletes).commit()
    assert snapshot.operation == "overwrite"
    assert {data.manifest_path, deletes.manifest_path} <= {
        part.manifest_path for part in table.manifests(snapshot)
    }
    assert live(table) == ["d", "new", "one"]
    check_table(open_table(str(tmp_path)))
    wrong = replace(stage(table, delete_file(table, one, "d3")), content=ManifestContent.DATA)
    with pytest.raises(DataInvalidError):
        RowDelta(table).append_manifest(wrong)


@pytest.mark.parametrize(("format_version", "vector"), [(2, True), (3, False)])
def test_each_format_version_takes_its_own_deletes(tmp_path: Path, format_version: int, vector: bool) -> None:
    table = make_table(tmp_path, format_version=format_version)
    one = data_file(table, name="one")
    wrong = delete_file(table, one, dv=vector)
    with pytest.raises(DataInvalidError, match=f"format version {format_version} takes"):
        RowDelta(table).add_deletes(wrong)
    with pytest.raises(DataInvalidError, match=f"format version {format_version} takes"):
        RowDelta(table).append_manifest(stage(table, wrong))


def test_a_vector_without_its_place_is_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    vector = delete_file(table, data_file(table))
    for field in ("referenced_data_file", "content_offset", "content_size_in_bytes"):
        with pytest.raises(DataInvalidError, match="without data file, offset or size"):
            RowDelta(table).add_deletes(replace(vector, **{field: None}))


def test_an_upgrade_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    one = data_file(table, name="one")
    append(table, one)
    delta = RowDelta(table).add_deletes(delete_file(table, one))
    UpdateProperties(open_table(str(tmp_path))).upgrade_format_version(3).commit()
    with pytest.raises(ConflictValidationError, match="upgraded to format version 3"):
        delta.commit()


def test_contents_are_not_mixed_up(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    data, delete = data_file(table), delete_file(table, data_file(table))
    for method, file in (
        ("add_rows", delete),
        ("remove_rows", delete),
        ("add_deletes", data),
        ("remove_deletes", data),
    ):
        with pytest.raises(InvalidOptionError, match=r"it with (add|remove)_"):
            getattr(RowDelta(table), method)(file)


def test_a_commit_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=3)
    one = data_file(table, "a", name="one")
    append(table, one)
    vector, other = delete_file(table, one, "d1"), delete_file(table, one, "d2")
    elsewhere = replace(vector, partition=("b",))
    new = data_file(table, "b", name="new")
    contradictions: list[tuple[RowDelta, str]] = [
        (RowDelta(table).add_deletes(vector).add_deletes(other), "two deletion vectors"),
        (RowDelta(table).add_deletes(vector).remove_rows(one), "do one of both"),
        (RowDelta(table).add_rows(one).remove_rows(one), "both added and removed"),
        (
            RowDelta(table)
            .add_rows(new)
            .add_deletes(replace(delete_file(table, new, "d3"), partition=("a",))),
            "data file's partition",
        ),
        (RowDelta(table).add_deletes(elsewhere).remove_deletes(other), "data file's partition"),
    ]
    before = metadata_files(table)
    for delta, reason in contradictions:
        with pytest.raises(DataInvalidError, match=reason):
            delta.commit()
    assert metadata_files(table) == before


def test_a_delete_in_another_partition_is_found_where_manifests_are_merged(tmp_path: Path) -> None:
    table = make_table(
        tmp_path,
        partition_by=("category",),
        properties={"commit.manifest.min-count-to-merge": "2"},
    )
    one = data_file(table, "a", name="one")
    append(table, one)
    wrong = replace(delete_file(table, one), partition=("b",))
    delta = RowDelta(table).add_rows(data_file(table, "a")).add_deletes(wrong)
    with pytest.raises(DataInvalidError, match="data file's partition"):
        delta.commit()


@pytest.mark.parametrize("merge", ["2", "100"])
@pytest.mark.parametrize("start", ["unknown", "known"])
def test_no_data_file_gets_two_vectors(tmp_path: Path, merge: str, start: str) -> None:
    table = make_table(tmp_path, format_version=3, properties={"commit.manifest.min-count-to-merge": merge})
    one, two = data_file(table, name="one"), data_file(table, name="two")
    append(table, one, two)
    known = RowDelta(table).add_deletes(delete_file(table, two, "d2")).commit().snapshot_id
    RowDelta(open_table(str(tmp_path))).add_deletes(delete_file(table, one, "theirs")).commit()
    delta = RowDelta(table).add_deletes(delete_file(table, one, "mine"))
    if start == "known":
        delta.validate_from_snapshot(known)
    with pytest.raises(ConflictValidationError, match="deletion vector"):
        delta.commit()
    delta = RowDelta(table).add_deletes(delete_file(table, one, "mine"))
    delta.remove_deletes(delete_file(table, one, "theirs")).commit()
    check_table(table)


def test_a_vector_that_was_there_before_the_start_is_found_in_what_is_written(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3, properties={"commit.manifest.min-count-to-merge": "2"})
    one = data_file(table, name="one")
    append(table, one)
    start = RowDelta(table).add_deletes(delete_file(table, one, "before")).commit().snapshot_id
    delta = RowDelta(table).add_deletes(delete_file(table, one, "mine")).require_head(start)
    with pytest.raises(ConflictValidationError, match="would have two deletion vectors"):
        delta.commit()
    two = data_file(table, name="two")
    append(table, two)
    head = RowDelta(table).add_deletes(delete_file(table, two, "other")).commit().snapshot_id
    UpdateProperties(table).set("commit.manifest-merge.enabled", "false").commit()
    delta = RowDelta(table).add_deletes(delete_file(table, one, "mine")).require_head(head)
    delta.remove_deletes(delete_file(table, two, "other"))
    with pytest.raises(ConflictValidationError, match="the new one does not replace"):
        delta.commit()
    check_table(table)


def test_another_head_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    one = data_file(table, name="one")
    with pytest.raises(HeadMovedError, match="snapshot 5, but the branch is at an empty table"):
        RowDelta(table).add_rows(one).require_head(5).commit()
    start = RowDelta(table).add_rows(one).require_head(None).commit().snapshot_id

    def others_append() -> None:
        operations.before_swap = None
        append(open_table(str(tmp_path)), data_file(table))

    operations = FaultyOperations(table.operations, before_swap=others_append)
    delta = RowDelta(Table(table.name, operations)).require_head(start).add_deletes(delete_file(table, one))
    with pytest.raises(HeadMovedError) as caught:
        delta.commit()
    found = open_table(str(tmp_path)).current_snapshot
    assert found is not None
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, ConflictValidationError)
    assert (error.expected, error.found) == (start, found.snapshot_id)
    assert table.name in str(error)
    assert str(error) == str(caught.value)
    lists = [name for name in metadata_files(table) if name.startswith("snap-")]
    assert len(lists) == 2
    check_table(table)


def test_a_branch_has_its_own_head(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    one = data_file(table, name="one")
    start = append(table, one)
    first = RowDelta(table, "dev").require_head(start).add_deletes(delete_file(table, one)).commit()
    with pytest.raises(HeadMovedError, match=str(first.snapshot_id)):
        RowDelta(table, "dev").require_head(start).add_rows(data_file(table)).commit()
    RowDelta(table).require_head(start).add_rows(data_file(table)).commit()
    check_table(table)


@VERSIONS
@pytest.mark.parametrize("validate_deleted", [False, True])
def test_data_files_that_rows_are_deleted_from_must_exist(
    tmp_path: Path, format_version: int, validate_deleted: bool
) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=format_version)
    one, two = data_file(table, "a", name="one"), data_file(table, "b", name="two")
    start = append(table, one, two)

    def delta(target: DataFile) -> RowDelta:
        delta = RowDelta(table).validate_from_snapshot(start).validate_data_files_exist([target.file_path])
        if validate_deleted:
            delta.validate_deleted_files()
        return delta.add_deletes(delete_file(table, target, f"d-{target.partition[0]}"))

    OverwriteFiles(table).delete_file(one).add_file(data_file(table, "a")).commit()
    with pytest.raises(ConflictValidationError, match="removed data files"):
        delta(one).commit()
    OverwriteFiles(table).overwrite_by_filter("category = 'b'").commit()
    if validate_deleted or format_version >= 3:
        with pytest.raises(ConflictValidationError, match="removed data files"):
            delta(two).commit()
    else:
        delta(two).commit()
    check_table(table)


def test_isolation_levels(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    one, two = data_file(table, "a", name="one"), data_file(table, "b", name="two")
    start = append(table, one, two)

    def delta(level: str, seen: str = "true") -> RowDelta:
        return (
            RowDelta(table)
            .add_rows(data_file(table, "a"))
            .isolation(level, start)
            .conflict_detection_filter(seen)
        )

    append(table, data_file(table, "a"))
    delta("snapshot").commit()
    with pytest.raises(ConflictValidationError, match="added data"):
        delta("serializable").commit()
    delta("serializable", "category = 'b'").commit()
    RowDelta(table).add_deletes(delete_file(table, two)).commit()
    delta("snapshot", "category = 'a'").commit()
    with pytest.raises(ConflictValidationError, match="deleted rows"):
        delta("snapshot", "category = 'b'").commit()
    with pytest.raises(ConflictValidationError, match="deleted rows of data files"):
        RowDelta(table).remove_rows(two).isolation("snapshot", start).conflict_detection_filter(
            "id < 5"
        ).commit()
    with pytest.raises(InvalidOptionError, match="isolation level"):
        delta("none")
    with pytest.raises(InvalidOptionError, match="nowhere"):
        RowDelta(table).conflict_detection_filter("nowhere = 1")
    check_table(table)


def test_the_single_validations(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    one = data_file(table, name="one")
    start = append(table, one)
    append(table, data_file(table))
    with pytest.raises(ConflictValidationError, match="added data"):
        RowDelta(table).validate_from_snapshot(start).validate_no_conflicting_data_files().commit()
    RowDelta(table).validate_from_snapshot(start).validate_no_conflicting_delete_files().commit()
    RowDelta(table).add_deletes(delete_file(table, one)).commit()
    with pytest.raises(ConflictValidationError, match="deleted rows"):
        RowDelta(table).validate_from_snapshot(start).validate_no_conflicting_delete_files().commit()


def others_delete(location: Path, file: DataFile) -> Callable[[], None]:
    left = [1]

    def hook() -> None:
        if left[0]:
            left[0] -= 1
            other = open_table(str(location))
            RowDelta(other).add_deletes(delete_file(other, file, "theirs")).commit()

    return hook


@pytest.mark.parametrize("merge", ["2", "100"])
def test_a_conflict_is_retried_on_the_new_version(tmp_path: Path, merge: str) -> None:
    table = make_table(tmp_path, format_version=3, properties={"commit.manifest.min-count-to-merge": merge})
    one, two = data_file(table, name="one"), data_file(table, name="two")
    start = append(table, one, two)
    operations = FaultyOperations(table.operations, before_swap=others_delete(tmp_path, two))
    delta = RowDelta(Table(table.name, operations)).validate_from_snapshot(start)
    snapshot = (
        delta.add_rows(data_file(table, name="new")).add_deletes(delete_file(table, one, "mine")).commit()
    )
    assert (operations.attempts, snapshot.sequence_number) == (2, 3)
    assert live(table) == ["mine", "new", "one", "theirs", "two"]
    assert snapshot.summary["total-delete-files"] == "2"
    check_table(table)
    referenced = {
        Path(part.manifest_path).name for snapshot in table.snapshots for part in table.manifests(snapshot)
    } | {Path(snapshot.manifest_list or "").name for snapshot in table.snapshots}
    assert {name for name in metadata_files(table) if name.endswith(".avro")} == referenced


def test_files_of_an_older_spec_are_deleted_where_they_are(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=3)
    old = data_file(table, "a", name="old")
    append(table, old)
    base = table.metadata
    evolved = replace(parse_partition_by(["bucket(4, id)"], table.schema), spec_id=1)
    evolved = replace(evolved, fields=(replace(evolved.fields[0], field_id=1001),))
    table.operations.commit(
        base, replace(base, specs=(*base.specs, evolved), default_spec_id=1, last_partition_id=1001)
    )
    vector = replace(delete_file(table, old), spec_id=0)
    RowDelta(table).add_rows(data_file(table, 2)).add_deletes(vector).commit()
    newer = replace(delete_file(table, old, "newer"), spec_id=0)
    RowDelta(table).remove_deletes(vector).add_deletes(newer).add_rows(data_file(table, 3)).commit()
    assert live(table)[-1] == "old"
    check_table(open_table(str(tmp_path)))
