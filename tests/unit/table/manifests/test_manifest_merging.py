from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from streamlake.catalog.open import open_table
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.table.manifests.manifest_merging import pack_from_end, worth_rewriting
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.table import Table
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.tables import FaultyOperations, data_file, make_table, metadata_files, stage
from tests.unit.table.producers.test_commit_attempts import others_commit


def manifest(length: int) -> ManifestFile:
    return ManifestFile(f"m{length}", length, 0, ManifestContent.DATA, *([None] * 9))


def test_bins_are_filled_from_the_end_and_keep_their_order() -> None:
    lengths = [3, 4, 5, 4, 12, 1, 1]
    packed = pack_from_end([manifest(length) for length in lengths], 10, lambda m: m.manifest_length)
    assert [[m.manifest_length for m in group] for group in packed] == [[3, 4], [5, 4], [12], [1, 1]]


def test_a_large_old_manifest_waits_until_the_newer_ones_weigh_as_much() -> None:
    def rewritten(*lengths: int) -> list[int]:
        return [m.manifest_length for m in worth_rewriting([manifest(n) for n in lengths], 8_000)]

    assert rewritten(10, 20, 1000) == [10, 20, 1000], "small ones are merged as in Iceberg"
    assert rewritten(10, 20, 1001) == [10, 20]
    assert rewritten(900, 900, 1700) == [900, 900, 1700]
    assert rewritten(900, 1500, 5000) == [900]
    assert rewritten(5000) == [5000]


def test_what_waits_keeps_its_place_behind_the_merged_manifest(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append = AppendFiles(table)
    for _ in range(1500):
        append.append_file(data_file(table, name=uuid4().hex))
    append.commit()
    (large,) = table.manifests(table.current_snapshot)
    UpdateProperties(table).set("commit.manifest.min-count-to-merge", "3").set(
        "commit.manifest.target-size-bytes", str(large.manifest_length * 4)
    ).commit()
    lists = []
    for _ in range(3):
        AppendFiles(table).append_file(data_file(table)).commit()
        lists.append([part.manifest_path for part in table.manifests(table.current_snapshot)])
        check_table(table)
    assert [len(paths) for paths in lists] == [2, 2, 2]
    assert all(paths[-1] == large.manifest_path for paths in lists)


@pytest.mark.parametrize("format_version", [2, 3])
def test_manifests_are_merged_at_the_count(tmp_path: Path, format_version: int) -> None:
    table = make_table(
        tmp_path, format_version=format_version, properties={"commit.manifest.min-count-to-merge": "4"}
    )
    counts = []
    for records in range(1, 10):
        snapshot = AppendFiles(table).append_file(data_file(table, records=records)).commit()
        counts.append(len(table.manifests(snapshot)))
        check_table(table)
    assert counts == [1, 2, 3, 1, 2, 3, 1, 2, 3]
    merges = [s.summary["manifests-replaced"] for s in table.snapshots]
    assert merges == ["0", "0", "0", "3", "0", "0", "3", "0", "0"]
    assert table.snapshots[3].summary["entries-processed"] == "3"
    entries = {entry.data_file.record_count: entry for entry in live_entries(open_table(str(tmp_path)))}
    assert {records: entry.sequence_number for records, entry in entries.items()} == {
        n: n for n in range(1, 10)
    }
    by_sequence = {snapshot.sequence_number: snapshot.snapshot_id for snapshot in table.snapshots}
    assert all(entry.snapshot_id == by_sequence[n] for n, entry in entries.items())
    merged_away = [name for name in metadata_files(table) if "-m" in name]
    assert len(merged_away) == 9 + 2 - 2, "the unmerged manifest of a merging commit is removed"


def test_row_ids_survive_merging(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3, properties={"commit.manifest.min-count-to-merge": "3"})
    starts: dict[str, int | None] = {}
    for _ in range(8):
        file = data_file(table, records=5)
        AppendFiles(table).append_file(file).commit()
        now = {entry.data_file.file_path: entry.data_file.first_row_id for entry in live_entries(table)}
        assert all(now[path] == start for path, start in starts.items())
        starts = now
        check_table(table)


def test_merging_can_be_switched_off(tmp_path: Path) -> None:
    off = {"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "false"}
    table = make_table(tmp_path, properties=off)
    for _ in range(5):
        AppendFiles(table).append_file(data_file(table)).commit()
    assert len(table.manifests(table.current_snapshot)) == 5


def test_full_manifests_are_left_alone(tmp_path: Path) -> None:
    small = {"commit.manifest.min-count-to-merge": "2", "commit.manifest.target-size-bytes": "1"}
    table = make_table(tmp_path, properties=small)
    for _ in range(5):
        AppendFiles(table).append_file(data_file(table)).commit()
    assert len(table.manifests(table.current_snapshot)) == 5


def test_a_staged_manifest_is_not_merged_by_its_own_commit(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"commit.manifest.min-count-to-merge": "3"})
    for number in range(7):
        staged = stage(table, data_file(table), uuid=f"staged-{number}")
        snapshot = AppendFiles(table).append_manifest(staged).commit()
        manifests = table.manifests(snapshot)
        assert manifests[0].manifest_path == staged.manifest_path
        assert len(manifests) <= 3
        check_table(table)
    assert all((tmp_path / "metadata" / f"staged-{n}-m0.avro").exists() for n in range(7))


def test_a_retried_merge_takes_up_what_others_added(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"commit.manifest.min-count-to-merge": "3"})
    for _ in range(2):
        AppendFiles(table).append_file(data_file(table)).commit()
    mine = Table(table.name, FaultyOperations(table.operations, before_swap=others_commit(tmp_path, 1)))
    AppendFiles(mine).append_file(data_file(table)).commit()
    fresh = open_table(str(tmp_path))
    check_table(fresh)
    assert len(live_entries(fresh)) == 4
    referenced = {
        Path(part.manifest_path).name for snapshot in fresh.snapshots for part in fresh.manifests(snapshot)
    }
    assert {name for name in metadata_files(fresh) if "-m" in name} == referenced, "no orphan is left"


def test_deleted_entries_are_dropped_by_the_next_merge(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"commit.manifest.min-count-to-merge": "3"})
    files = [data_file(table) for _ in range(3)]
    append = AppendFiles(table)
    for file in files:
        append.append_file(file)
    append.commit()
    removal = OverwriteFiles(table).delete_file(files[0]).commit()
    assert [part.deleted_files_count for part in table.manifests(removal)] == [1]
    for _ in range(2):
        AppendFiles(table).append_file(data_file(table)).commit()
    (merged,) = table.manifests(table.current_snapshot)
    assert (merged.deleted_files_count, merged.existing_files_count, merged.added_files_count) == (0, 3, 1)
    check_table(table)
