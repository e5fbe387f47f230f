from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import DataInvalidError, FeatureUnsupportedError, InvalidOptionError
from streamlake.formats.manifests.manifest_lists import read_manifest_list
from streamlake.table.producers.append_files import AppendFiles
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.tables import data_file, make_table, stage


@pytest.mark.parametrize("format_version", [2, 3])
def test_an_append_adds_one_snapshot_with_all_counters(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=format_version)
    append = AppendFiles(table)
    append.append_file(data_file(table, "a", records=7, size=100))
    append.append_file(data_file(table, "b", records=3, size=50))
    snapshot = append.commit()
    assert snapshot.summary["operation"] == "append"
    assert {key: snapshot.summary[key] for key in sorted(snapshot.summary) if key[0] in "act"} == {
        "added-data-files": "2",
        "added-files-size": "150",
        "added-records": "10",
        "changed-partition-count": "2",
        "total-data-files": "2",
        "total-delete-files": "0",
        "total-equality-deletes": "0",
        "total-files-size": "150",
        "total-position-deletes": "0",
        "total-records": "10",
    }
    assert snapshot.summary["manifests-created"] == "1"
    assert snapshot.summary["manifests-kept"] == "0"
    assert snapshot.summary["manifests-replaced"] == "0"
    assert snapshot.summary["engine-name"] == "streamlake"
    second = AppendFiles(table).append_file(data_file(table, "a", records=5, size=10)).commit()
    assert second.parent_snapshot_id == snapshot.snapshot_id
    assert (second.sequence_number, second.summary["total-records"]) == (2, "15")
    assert second.summary["manifests-kept"] == "1"
    check_table(table)
    again = open_table(str(tmp_path))
    assert again.current_snapshot == second
    assert sorted(file.record_count for file in live_data_files(again)) == [3, 5, 7]


def test_partition_summaries_are_written_up_to_the_limit(tmp_path: Path) -> None:
    table = make_table(
        tmp_path, partition_by=("category",), properties={"write.summary.partition-limit": "1"}
    )
    one = AppendFiles(table).append_file(data_file(table, "a b", records=7, size=100)).commit()
    assert one.summary["partition-summaries-included"] == "true"
    assert one.summary["partitions.category=a+b"] == "added-data-files=1,added-records=7,added-files-size=100"
    both = AppendFiles(table)
    both.append_file(data_file(table, "a"))
    both.append_file(data_file(table, "b"))
    summary = both.commit().summary
    assert not [key for key in summary if key.startswith("partition")]
    assert summary["changed-partition-count"] == "2"


def test_an_empty_append_makes_a_snapshot(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append = AppendFiles(table)
    append.set_summary({"streamlake.job-id": "j"})
    append.set_properties({"streamlake.pipeline.p": "3"})
    snapshot = append.commit()
    assert snapshot.summary["streamlake.job-id"] == "j"
    assert snapshot.summary["changed-partition-count"] == "0"
    assert open_table(str(tmp_path)).properties["streamlake.pipeline.p"] == "3"
    check_table(table)


def test_counters_cannot_be_overridden(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append = AppendFiles(table).append_file(data_file(table))
    append.set_summary({"added-records": "999", "note": "kept"})
    summary = append.commit().summary
    assert (summary["added-records"], summary["note"]) == ("10", "kept")


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_staged_manifest_becomes_the_snapshots_manifest(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=format_version)
    AppendFiles(table).append_file(data_file(table, "x", records=4)).commit()
    staged = stage(
        table, data_file(table, "a", records=7, size=70), data_file(table, "b", records=2, size=20)
    )
    before = Path(staged.manifest_path).read_bytes()
    snapshot = AppendFiles(table).append_manifest(staged).commit()
    assert staged.manifest_path in [manifest.manifest_path for manifest in table.manifests(snapshot)]
    assert Path(staged.manifest_path).read_bytes() == before
    assert snapshot.summary["added-records"] == "9"
    assert snapshot.summary["added-files-size"] == "90"
    assert snapshot.summary["changed-partition-count"] == "2"
    fresh = open_table(str(tmp_path))
    entries = [entry for entry in live_entries(fresh) if entry.data_file.record_count in (7, 2)]
    assert {(entry.snapshot_id, entry.sequence_number) for entry in entries} == {(snapshot.snapshot_id, 2)}
    check_table(fresh)


def test_v3_rows_get_ids_and_the_snapshot_counts_them(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    first = AppendFiles(table)
    first.append_file(data_file(table, records=10))
    first.append_file(data_file(table, records=5))
    one = first.commit()
    two = AppendFiles(table).append_manifest(stage(table, data_file(table, records=7))).commit()
    assert (one.first_row_id, one.added_rows) == (0, 15)
    assert (two.first_row_id, two.added_rows) == (15, 7)
    assert open_table(str(tmp_path)).metadata.next_row_id == 22
    starts = sorted((file.first_row_id, file.record_count) for file in live_data_files(table))
    assert starts == [(0, 10), (10, 5), (15, 7)]
    check_table(table)


def test_a_file_is_added_once(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    file = data_file(table)
    snapshot = AppendFiles(table).append_file(file).append_file(file).commit()
    assert snapshot.summary["added-data-files"] == "1"
    staged = stage(table, data_file(table, name="s"))
    append = AppendFiles(table).append_manifest(staged)
    with pytest.raises(DataInvalidError, match=r"s\.parquet"):
        append.append_file(data_file(table, name="s"))
    with pytest.raises(DataInvalidError, match="twice"):
        append.append_manifest(staged)


def test_only_staged_additions_can_be_appended(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    snapshot = AppendFiles(table).append_file(data_file(table)).commit()
    committed = table.manifests(snapshot)[0]
    with pytest.raises(InvalidOptionError, match="only a staged"):
        AppendFiles(table).append_manifest(committed)
    staged = stage(table, data_file(table))
    with pytest.raises(InvalidOptionError, match="additions only"):
        AppendFiles(table).append_manifest(replace(staged, existing_files_count=1))
    with pytest.raises(DataInvalidError, match="2 were staged"):
        AppendFiles(table).append_manifest(replace(staged, added_files_count=2), [data_file(table)])


def test_a_file_of_another_table_is_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    with pytest.raises(DataInvalidError, match="partition spec 9"):
        AppendFiles(table).append_file(replace(data_file(table, "a"), spec_id=9))
    with pytest.raises(DataInvalidError, match="1 fields"):
        AppendFiles(table).append_file(replace(data_file(table, "a"), partition=()))


def test_an_operation_commits_once(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append = AppendFiles(table).append_file(data_file(table))
    append.commit()
    with pytest.raises(InvalidOptionError, match="committed before"):
        append.commit()
    assert len(open_table(str(tmp_path)).snapshots) == 1


def test_a_v1_table_is_not_written(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    operations = table.operations
    old = replace(operations.current(), format_version=1)
    operations.commit(operations.current(), old)
    with pytest.raises(FeatureUnsupportedError, match="upgrade"):
        AppendFiles(table).append_file(data_file(table)).commit()
    assert not list((tmp_path / "metadata").glob("*.avro"))


def test_other_fields_of_the_metadata_survive(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    operations = table.operations
    statistics = ({"snapshot-id": 1, "statistics-path": "s.puffin", "x": 1},)
    odd = replace(operations.current(), statistics=statistics, extra={"future-field": {"deep": [1]}})
    operations.commit(operations.current(), odd)
    AppendFiles(table).append_file(data_file(table)).commit()
    metadata = open_table(str(tmp_path)).metadata
    assert metadata.statistics == statistics
    assert metadata.extra == {"future-field": {"deep": [1]}}


def test_manifests_and_their_list_are_compressed_as_the_table_says(tmp_path: Path) -> None:
    table = make_table(
        tmp_path, partition_by=("category",), properties={"write.manifest.compression-codec": "zstd"}
    )
    snapshot = AppendFiles(table).append_file(data_file(table, "a")).commit()
    assert snapshot.manifest_list is not None
    (manifest,) = read_manifest_list(table.io, snapshot.manifest_list)
    for path in (snapshot.manifest_list, manifest.manifest_path):
        assert b"avro.codec\x12zstandard" in table.io.read_bytes(path)
    check_table(table)
