from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamlake import create_table
from streamlake.catalog.open import open_table
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.formats.manifests import metadata_json
from streamlake.spec.metadata.snapshot import Snapshot, snapshot_to_json
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.updates.metadata_changes import with_format_version
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.tables import data_file, make_table


def test_a_commit_does_not_touch_the_snapshots_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    for _ in range(120):
        AppendFiles(table).append_file(data_file(table)).commit()
    written: list[int] = []

    def counted(snapshot: Snapshot) -> dict[str, object]:
        written.append(snapshot.snapshot_id)
        return snapshot_to_json(snapshot)

    monkeypatch.setattr(metadata_json, "snapshot_to_json", counted)
    index = table.metadata.snapshots_by_id
    snapshot = AppendFiles(table).append_file(data_file(table)).commit()
    assert written == [snapshot.snapshot_id]
    assert "snapshots_by_id" in vars(table.metadata), "the index is carried over, not built again"
    assert table.metadata.snapshots_by_id == {**index, snapshot.snapshot_id: snapshot}
    check_table(open_table(str(tmp_path)))


def test_upgrades_go_up_and_are_written(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    AppendFiles(table).append_file(data_file(table, records=5)).commit()
    UpdateProperties(table).set("format-version", "3").commit()
    assert "format-version" not in table.properties
    assert (table.format_version, table.metadata.next_row_id) == (3, 0)
    assert live_data_files(table)[0].first_row_id is None, "no row has an id before the next commit"
    snapshot = AppendFiles(table).append_file(data_file(table, records=7)).commit()
    assert (snapshot.first_row_id, snapshot.added_rows) == (0, 12)
    check_table(open_table(str(tmp_path)))
    with pytest.raises(InvalidOptionError, match="back"):
        UpdateProperties(table).upgrade_format_version(2).commit()
    with pytest.raises(FeatureUnsupportedError, match="4"):
        UpdateProperties(table).upgrade_format_version(4).commit()
    with pytest.raises(InvalidOptionError, match="three"):
        UpdateProperties(table).set("format-version", "three")


def test_an_upgraded_v1_table_gets_a_uuid(tmp_path: Path) -> None:
    base = replace(make_table(tmp_path).metadata, format_version=1, table_uuid="")
    upgraded = with_format_version(base, 2)
    assert len(upgraded.table_uuid) == 36


def test_reserved_properties_are_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    with pytest.raises(InvalidOptionError, match="reserved"):
        UpdateProperties(table).set("current-snapshot-id", "1").commit()
    with pytest.raises(InvalidOptionError, match="set and removed"):
        UpdateProperties(table).set("a", "1").remove("a")
    with pytest.raises(InvalidOptionError, match="set and removed"):
        UpdateProperties(table).remove("a").set("a", "1")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("commit.retry.num-retries", "many"),
        ("commit.retry.min-wait-ms", "-1"),
        ("commit.manifest.min-count-to-merge", "0"),
        ("commit.manifest-merge.enabled", "yes"),
    ],
)
def test_properties_that_make_no_sense_are_named(tmp_path: Path, key: str, value: str) -> None:
    table = make_table(tmp_path, properties={key: value})
    with pytest.raises(InvalidOptionError, match=key):
        AppendFiles(table).append_file(data_file(table)).commit()
    assert not list((tmp_path / "metadata").glob("*.avro"))


def test_row_ids_have_room_for_manifests_that_an_old_list_does_not_count(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    AppendFiles(table).append_file(data_file(table, records=10)).commit()
    [manifest] = table.manifests(table.current_snapshot)
    uncounted = replace(
        manifest,
        added_files_count=None,
        existing_files_count=None,
        deleted_files_count=None,
        added_rows_count=None,
        existing_rows_count=None,
        deleted_rows_count=None,
    )
    UpdateProperties(table).upgrade_format_version(3).commit()
    assert table.current_snapshot is not None
    table.remember_manifests(table.current_snapshot.manifest_list or "", (uncounted,))
    snapshot = AppendFiles(table).append_file(data_file(table, records=5)).commit()
    assert (snapshot.first_row_id, snapshot.added_rows) == (0, 15)
    assert open_table(str(tmp_path)).metadata.next_row_id == 15
    check_table(open_table(str(tmp_path)))


def test_metadata_log_limits_below_one_count_as_one(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"write.metadata.previous-versions-max": "0"})
    for value in ("1", "2"):
        UpdateProperties(table).set("p", value).commit()
    assert [entry.metadata_file[-16:] for entry in table.metadata.metadata_log] == ["v2.metadata.json"]


def test_a_property_that_makes_no_sense_can_be_mended_and_is_not_set(tmp_path: Path) -> None:
    key = "commit.retry.num-retries"
    create_table(tmp_path / "t", "id long", properties={key: "many"})
    table = open_table(str(tmp_path / "t"))
    UpdateProperties(table).set(key, "3").commit()
    with pytest.raises(InvalidOptionError, match=key):
        UpdateProperties(table).set(key, "many").commit()
    assert open_table(str(tmp_path / "t")).properties[key] == "3"
