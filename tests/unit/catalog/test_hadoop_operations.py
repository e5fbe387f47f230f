from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.commit_turn import commit_turn
from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.catalog.open import create, open_table
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    InvalidOptionError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.formats.manifests import metadata_json
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.local import LocalFileIO
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table
from tests.helpers.tables import data_file, make_table


def operations(location: Path) -> HadoopTableOperations:
    return HadoopTableOperations(str(location), LocalFileIO())


def versions(location: Path) -> list[str]:
    return sorted(path.name for path in (location / "metadata").glob("v*.metadata.json*"))


def set_property(table: Table, value: object) -> None:
    UpdateProperties(table).set("p", str(value)).commit()


def test_versions_and_hint_are_laid_out_as_iceberg_does(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for value in range(3):
        set_property(table, value)
    assert versions(tmp_path) == [f"v{n}.metadata.json" for n in range(1, 5)]
    assert (tmp_path / "metadata" / "version-hint.text").read_text() == "4"
    assert not list((tmp_path / "metadata").glob(".*")), "no temporary file is left"
    logged = [entry.metadata_file for entry in table.metadata.metadata_log]
    assert logged == [f"{tmp_path}/metadata/v{n}.metadata.json" for n in range(1, 4)]
    stored = json.loads((tmp_path / "metadata" / "v4.metadata.json").read_text())
    assert stored["properties"]["p"] == "2"
    assert stored["location"] == str(tmp_path)


def test_the_hint_may_be_late_missing_or_nonsense(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for value in range(3):
        set_property(table, value)
    hint = tmp_path / "metadata" / "version-hint.text"
    for text in ("1", "4\n", "99", "x", ""):
        hint.write_text(text)
        assert open_table(str(tmp_path)).properties["p"] == "2", text
    hint.unlink()
    fresh = open_table(str(tmp_path))
    assert fresh.properties["p"] == "2"
    set_property(fresh, 9)
    assert hint.read_text() == "5"


def test_own_commits_are_not_read_back_and_refresh_parses_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    other = open_table(str(tmp_path))
    parsed = []
    parse = metadata_json.parse_metadata

    def counted(data: bytes, path: str) -> object:
        parsed.append(path)
        return parse(data, path)

    monkeypatch.setattr(metadata_json, "parse_metadata", counted)
    for value in range(3):
        set_property(table, value)
        AppendFiles(table).append_file(data_file(table)).commit()
        table.refresh()
    assert parsed == []
    other.refresh()
    other.refresh()
    assert parsed == [f"{tmp_path}/metadata/v7.metadata.json"]


def test_a_stale_base_and_a_taken_version_are_conflicts(tmp_path: Path) -> None:
    make_table(tmp_path)
    one, two = operations(tmp_path), operations(tmp_path)
    base_one, base_two = one.refresh(), two.refresh()
    one.commit(base_one, with_properties(base_one, {"p": "1"}))
    with pytest.raises(CommitConflictError, match="older version"):
        one.commit(base_one, with_properties(base_one, {"p": "2"}))
    with pytest.raises(CommitConflictError, match="version 2 first"):
        two.commit(base_two, with_properties(base_two, {"p": "2"}))
    assert two.refresh().properties["p"] == "1"
    assert versions(tmp_path) == ["v1.metadata.json", "v2.metadata.json"]


def test_writers_that_change_the_codec_meet_on_one_name(tmp_path: Path) -> None:
    make_table(tmp_path)
    one, two = operations(tmp_path), operations(tmp_path)
    base_one, base_two = one.refresh(), two.refresh()
    one.commit(base_one, with_properties(base_one, {"write.metadata.compression-codec": "gzip"}))
    with pytest.raises(CommitConflictError):
        two.commit(base_two, with_properties(base_two, {"p": "2"}))


def test_gzip_metadata(tmp_path: Path) -> None:
    table = make_table(tmp_path, properties={"write.metadata.compression-codec": "gzip"})
    set_property(table, 1)
    UpdateProperties(table).set("write.metadata.compression-codec", "none").commit()
    set_property(table, 2)
    assert versions(tmp_path) == [
        "v1.gz.metadata.json",
        "v2.gz.metadata.json",
        "v3.gz.metadata.json",
        "v4.metadata.json",
    ]
    assert json.loads(gzip.decompress((tmp_path / "metadata" / "v2.gz.metadata.json").read_bytes()))
    assert open_table(str(tmp_path)).properties["p"] == "2"
    old_name = tmp_path / "metadata" / "v5.metadata.json.gz"
    old_name.write_bytes(gzip.compress((tmp_path / "metadata" / "v4.metadata.json").read_bytes()))
    fresh = open_table(str(tmp_path))
    set_property(fresh, 3)
    assert "v6.metadata.json" in versions(tmp_path)
    with pytest.raises(InvalidOptionError, match="zstd"):
        UpdateProperties(fresh).set("write.metadata.compression-codec", "zstd").commit()


def test_old_versions_are_forgotten_and_deleted_when_asked(tmp_path: Path) -> None:
    keep_two = {
        "write.metadata.previous-versions-max": "2",
        "write.metadata.delete-after-commit.enabled": "false",
    }
    table = make_table(tmp_path, properties=keep_two)
    for value in range(4):
        set_property(table, value)
    assert len(table.metadata.metadata_log) == 2
    assert len(versions(tmp_path)) == 5
    UpdateProperties(table).set("write.metadata.delete-after-commit.enabled", "true").commit()
    set_property(table, "last")
    set_property(table, "very last")
    assert versions(tmp_path) == [f"v{n}.metadata.json" for n in (1, 2, 6, 7, 8)]
    assert open_table(str(tmp_path)).properties["p"] == "very last"


def test_a_new_table_keeps_the_last_hundred_versions(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for value in range(105):
        set_property(table, value)
    assert len(table.metadata.metadata_log) == 100
    assert sorted(versions(tmp_path)) == sorted(f"v{n}.metadata.json" for n in range(6, 107))


def test_a_writer_that_slept_while_its_versions_were_deleted_does_not_win(tmp_path: Path) -> None:
    keep_one = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
        "commit.status-check.num-retries": "0",
    }
    table = make_table(tmp_path, properties=keep_one)
    sleeper = operations(tmp_path)
    base = sleeper.refresh()
    for value in range(5):
        set_property(table, value)
    with pytest.raises(CommitStateUnknownError, match="version 2"):
        sleeper.commit(base, with_properties(base, {"lost": "update"}))
    assert "lost" not in open_table(str(tmp_path)).properties
    assert sleeper.refresh().properties["p"] == "4"
    AppendFiles(Table("t", sleeper)).append_file(data_file(table)).commit()
    check_table(open_table(str(tmp_path)))


def test_reading_goes_on_after_the_known_version_was_deleted(tmp_path: Path) -> None:
    keep_one = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    table = make_table(tmp_path, properties=keep_one)
    reader = open_table(str(tmp_path))
    for value in range(5):
        set_property(table, value)
    assert reader.refresh().properties["p"] == "4"


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[1, 2]", b'{"format-version": 2}', b"\x1f\x8bbroken"]
)
def test_a_damaged_metadata_file_stops_everything_and_changes_nothing(tmp_path: Path, content: bytes) -> None:
    table = make_table(tmp_path)
    damaged = tmp_path / "metadata" / "v2.metadata.json"
    damaged.write_bytes(content)
    with pytest.raises(DataInvalidError, match=r"v2\.metadata\.json"):
        open_table(str(tmp_path))
    with pytest.raises(DataInvalidError, match=r"v2\.metadata\.json"):
        AppendFiles(table).append_file(data_file(table)).commit()
    assert damaged.read_bytes() == content
    assert versions(tmp_path) == ["v1.metadata.json", "v2.metadata.json"]
    damaged.unlink()
    AppendFiles(table).append_file(data_file(table)).commit()
    check_table(table)


def test_no_table_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    for location in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(TableNotFoundError, match="no Iceberg table"):
            open_table(str(location))
    assert not operations(tmp_path).exists()


def test_a_table_is_created_once(tmp_path: Path) -> None:
    make_table(tmp_path)
    with pytest.raises(TableAlreadyExistsError, match="already"):
        make_table(tmp_path)
    assert versions(tmp_path) == ["v1.metadata.json"]


def test_metadata_cannot_be_moved_away_from_its_catalog(tmp_path: Path) -> None:
    elsewhere = {"write.metadata.path": "/elsewhere"}
    with pytest.raises(InvalidOptionError, match=r"write\.metadata\.path"):
        make_table(tmp_path, properties=elsewhere)
    table = make_table(tmp_path)
    with pytest.raises(InvalidOptionError, match=r"write\.metadata\.path"):
        UpdateProperties(table).set("write.metadata.path", "/elsewhere").commit()


def test_a_stale_checksum_of_hadoop_is_removed(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    checksum = tmp_path / "metadata" / ".version-hint.text.crc"
    checksum.write_bytes(b"crc\0stale")
    set_property(table, 1)
    assert not checksum.exists()


def test_locations_may_be_uris(tmp_path: Path) -> None:
    create(f"file://{tmp_path}/t", parse_ddl("id long"))
    table = open_table(f"{tmp_path}/t/")
    assert table.location == f"file://{tmp_path}/t"
    AppendFiles(table).append_file(data_file(table)).commit()
    again = open_table(f"file:{tmp_path}/t")
    assert again.current_snapshot is not None
    assert (again.current_snapshot.manifest_list or "").startswith(f"file://{tmp_path}/t/metadata/snap-")
    check_table(again)


def test_a_storage_error_of_the_swap_is_final_unless_the_version_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    create_exclusive = LocalFileIO.create_exclusive

    def written_then_failed(self: LocalFileIO, path: str, data: bytes) -> None:
        create_exclusive(self, path, data)
        raise StorageError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, "create_exclusive", written_then_failed)
        AppendFiles(table).append_file(data_file(table)).commit()
    assert len(open_table(str(tmp_path)).snapshots) == 1
    check_table(table)


def test_a_turn_is_held_by_one_and_waited_for_in_vain_only_so_long(tmp_path: Path) -> None:
    with commit_turn(str(tmp_path)), commit_turn(str(tmp_path), longest_wait_s=0.01):
        pass
    with commit_turn(str(tmp_path / "missing")):
        pass


def test_time_does_not_go_back_when_clocks_do(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    ops = table.operations
    future = ops.current().last_updated_ms + 3_600_000
    ops.commit(ops.current(), replace(ops.current(), last_updated_ms=future))
    snapshot = AppendFiles(table).append_file(data_file(table)).commit()
    assert snapshot.timestamp_ms == future
    check_table(table)


def test_a_table_in_the_metadata_directory_is_not_taken_for_the_table_above_it(tmp_path: Path) -> None:
    make_table(tmp_path / "lake" / "metadata")
    with pytest.raises(TableNotFoundError):
        open_table(str(tmp_path / "lake"))
    assert open_table(str(tmp_path / "lake" / "metadata")).schema.fields
