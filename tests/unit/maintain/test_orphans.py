"""Orphan removal: what nothing refers to goes when it is old, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from streamlake import clock, failpoints
from streamlake.catalog.open import create, open_table
from streamlake.errors import DataInvalidError, InvalidOptionError, MissingFileError
from streamlake.failpoints import FailpointError
from streamlake.maintain import orphans as removal
from streamlake.maintain.expire import expire_snapshots
from streamlake.maintain.old_metadata import remove_old_metadata
from streamlake.maintain.orphans import remove_orphans
from streamlake.maintain.prefixes import EqualPrefixes, NeededPaths, PrefixMismatch
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.local import LocalFileIO
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import load_table
from tests.helpers.batch_write import append, write_files
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.row_deltas import row_delta
from tests.helpers.tables import make_table

DAY = 86_400


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "category": pa.array(["a"] * len(ids))})


@pytest.fixture(params=[2, 3])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    table = make_table(tmp_path / "t", partition_by=("category",), format_version=request.param)
    append(table, rows(1, 2, 3))
    row_delta(table, {1}, rows(6)).commit()
    ManageRefs(table).create_tag("tag").commit()
    row_delta(table, {2}, rows(7)).commit()
    return table


def grow_old(location: str, days: float = 10) -> None:
    """Every file of the table was written days ago."""
    then = clock.now_ms() / 1000 - days * DAY
    for path in Path(location).rglob("*"):
        os.utime(path, (then, then))


def litter(location: str, *names: str, days: float = 10) -> set[str]:
    then = clock.now_ms() / 1000 - days * DAY
    paths = [Path(location, name) for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"litter")
        os.utime(path, (then, then))
    return set(map(str, paths))


def files(location: str) -> set[str]:
    return {str(path) for path in Path(location).rglob("*") if path.is_file()}


def test_only_litter_goes(table: Table) -> None:
    grow_old(table.location)
    had = files(table.location)
    dropped = litter(
        table.location,
        "data/category=a/left.parquet",
        "data/deep/er/x.parquet",
        "metadata/snap-1-1-x.avro",
        "metadata/.v9.metadata.json.0.tmp",
    )
    kept = litter(table.location, "elsewhere/file", "data/young.parquet")
    os.utime(Path(table.location, "data/young.parquet"))
    planned = remove_orphans(table, dry_run=True)
    assert {orphan.path for orphan in planned.orphans} == dropped
    assert planned.bytes == 6 * len(dropped)
    assert {orphan.kind for orphan in planned.orphans} == {"data", "metadata", "temporary"}
    assert files(table.location) == had | dropped | kept
    done = remove_orphans(table)
    assert (done.orphans, done.deleted.files) == (planned.orphans, len(dropped))
    assert files(table.location) == had | kept
    check_table(open_table(table.location), files_exist=True)
    assert load_table(table.location).remove_orphans().orphans == ()


def test_the_age(table: Table) -> None:
    litter(table.location, "data/two-days.parquet", days=2)
    litter(table.location, "data/four-days.parquet", days=4)
    loaded = load_table(table.location)
    assert [Path(each.path).stem for each in loaded.remove_orphans(dry_run=True).orphans] == ["four-days"]
    assert len(loaded.remove_orphans("30h", dry_run=True).orphans) == 2
    assert loaded.remove_orphans("5d", dry_run=True).orphans == ()
    with pytest.raises(InvalidOptionError, match="at least 24 hours"):
        loaded.remove_orphans("23h")


def test_other_tables_inside_are_left_alone(table: Table) -> None:
    inner = make_table(Path(table.location, "data", "inner"))
    append(inner, rows(1))
    litter(inner.location, "data/its-own-litter.parquet")
    litter(table.location, "metadata/other/meta/00001-abc.metadata.json", "metadata/other/data.parquet")
    dropped = litter(table.location, "data/inner-not.parquet")
    grow_old(table.location)
    assert {each.path for each in remove_orphans(table).orphans} == dropped
    check_table(open_table(inner.location), files_exist=True)
    assert Path(table.location, "metadata/other/data.parquet").exists()


def test_links_to_folders_are_neither_followed_nor_removed(table: Table, tmp_path: Path) -> None:
    Path(tmp_path, "other").mkdir()
    litter(str(tmp_path / "other"), "file.parquet")
    Path(table.location, "data", "link").symlink_to(tmp_path / "other")
    grow_old(table.location)
    assert remove_orphans(table).orphans == ()
    assert Path(table.location, "data", "link", "file.parquet").exists()


def test_data_outside_of_the_table_is_not_listed(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", properties={"write.data.path": str(tmp_path / "shared")})
    append(table, rows(1))
    litter(str(tmp_path), "shared/others.parquet")
    found = remove_orphans(table)
    assert found.not_listed == (str(tmp_path / "shared"),)
    assert found.orphans == ()
    assert Path(tmp_path, "shared/others.parquet").exists()


def test_staged_checkpoints_and_the_index_stay(tmp_path: Path) -> None:
    make_table(tmp_path / "t", "id long, v long")
    stream = LocalUpserts(str(tmp_path / "t"), key=["id"])
    change = pa.table({"id": pa.array([1, 2], pa.int64()), "v": pa.array([1, 2], pa.int64())})
    stream.checkpoint(change)
    assert stream.stage(change) is not None
    litter(stream.location, "metadata/_index/old.run")
    grow_old(stream.location)
    had = files(stream.location)
    assert remove_orphans(open_table(stream.location)).orphans == ()
    assert files(stream.location) == had
    stream.restart()
    assert len(stream.recover()) == 1
    check_table(open_table(stream.location), files_exist=True)


def test_what_is_committed_while_folders_are_listed_stays(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old files, such as those of add_files, that somebody commits just now."""
    result = write_files(table, rows(9))
    grow_old(table.location)
    had = files(table.location)
    listing = removal.listed

    def listed(*given: Any) -> Any:
        yield from listing(*given)
        other = open_table(table.location)
        delta = row_delta(other, set())
        for file in result.data_files:
            delta.add_rows(file)
        delta.commit()

    monkeypatch.setattr(removal, "listed", listed)
    assert remove_orphans(table).orphans == ()
    assert had <= files(table.location)
    check_table(open_table(table.location), files_exist=True)


def test_what_an_expiry_has_left_is_found(table: Table) -> None:
    """A stop right after the commit of an expiry, and another one among the orphans."""
    planned = expire_snapshots(table, older_than_ms=clock.now_ms() + 1, dry_run=True)
    failpoints.arm("snapshots-expired=raise")
    with pytest.raises(FailpointError):
        expire_snapshots(table, older_than_ms=clock.now_ms() + 1)
    grow_old(table.location)
    failpoints.arm("orphans-deleted=raise")
    with pytest.raises(FailpointError):
        remove_orphans(open_table(table.location))
    failpoints.arm("")
    litter(table.location, "data/another.parquet")
    remove_orphans(open_table(table.location))
    assert not files(table.location) & set(planned.files.in_order)
    check_table(open_table(table.location), files_exist=True)


def test_metadata_that_cannot_be_read_stops_it(table: Table) -> None:
    litter(table.location, "data/left.parquet")
    Path(table.manifests(table.current_snapshot)[0].manifest_path).unlink()
    with pytest.raises(MissingFileError):
        remove_orphans(open_table(table.location))
    assert Path(table.location, "data/left.parquet").exists()


def test_a_table_that_forbids_it(table: Table) -> None:
    UpdateProperties(table).set("gc.enabled", "false").commit()
    with pytest.raises(InvalidOptionError, match=r"gc\.enabled"):
        remove_orphans(table)


class _Renamed(LocalFileIO):
    """Local files that a listing shows with the prefix of an object store."""

    def list_level(self, path: str) -> Any:
        found, folders = super().list_level(path)
        return [replace(each, path=f"hdfs://old{each.path}") for each in found], folders

    def list_prefix(self, path: str) -> Any:
        return (replace(each, path=f"hdfs://old{each.path}") for each in super().list_prefix(path))


def test_another_prefix_is_an_error_unless_it_is_said_to_be_equal() -> None:
    named = NeededPaths(EqualPrefixes.of({"viewfs": "hdfs"}, {"nn1,nn2": "nn"}))
    named.add(["s3a://b/t/f", "hdfs://nn1/t/g", "/local/h"])
    assert all(map(named.has, ["s3://b/t/f", "s3n://b/t/f", "viewfs://nn2/t/g", "hdfs://nn/t/g"]))
    assert all(map(named.has, ["file:/local/h", "file:///local/h", "/local/h"]))
    assert named.differing("s3://c/t/f") == (("s3", "c"), ("s3", "b"))
    assert named.differing("s3://b/t/other") is None
    assert not named.has("hdfs://nn3/t/g")
    named.add(["hdfs://nn3/t/g"])
    assert named.has("hdfs://nn3/t/g")
    assert named.has("hdfs://nn1/t/g")


@pytest.mark.parametrize("mode", ["ERROR", "ignore", "Delete"])
def test_the_mode_for_other_prefixes(mode: str, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    grow_old(table.location)
    had = files(table.location)
    monkeypatch.setattr(removal, "storage_key", lambda path: path.removeprefix("hdfs://old"))
    monkeypatch.setattr(type(table.operations), "io", _Renamed())
    if mode == "ERROR":
        with pytest.raises(DataInvalidError, match="listed as hdfs://old, in the metadata a local path"):
            remove_orphans(table, dry_run=True)
        with pytest.raises(DataInvalidError, match="equal_schemes"):
            remove_orphans(table)
    elif mode == "ignore":
        found = remove_orphans(table, prefix_mismatch_mode=mode)
        assert found.orphans == ()
        assert found.left > 0
    else:
        assert len(remove_orphans(table, prefix_mismatch_mode=mode, dry_run=True).orphans) > 0
    assert files(table.location) == had
    with pytest.raises(InvalidOptionError, match="none of error, ignore, delete"):
        PrefixMismatch.parse("drop")


@pytest.mark.parametrize("spelling", ["{}//data", "{}/./data", "{}/metadata/../data", "{}/link"])
def test_files_that_the_metadata_names_in_another_way_are_no_orphans(spelling: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", properties={"write.data.path": spelling.format(tmp_path / "t")})
    Path(table.location, "data").mkdir(parents=True)
    Path(table.location, "link").symlink_to(Path(table.location, "data"))
    append(table, rows(1))
    UpdateProperties(table).set("write.data.path", f"{table.location}/data").commit()
    append(table, rows(2))
    dropped = litter(table.location, "data/left.parquet")
    grow_old(table.location)
    assert {each.path for each in remove_orphans(table).orphans} == dropped
    check_table(open_table(table.location), files_exist=True)


def test_a_folder_that_leads_out_of_the_table_is_not_listed(tmp_path: Path) -> None:
    other = make_table(tmp_path / "other")
    append(other, rows(1))
    table = make_table(tmp_path / "t", properties={"write.data.path": f"{tmp_path}/t/../other/data"})
    append(table, rows(2))
    grow_old(str(tmp_path))
    found = remove_orphans(table)
    assert (found.orphans, found.not_listed) == ((), (f"{tmp_path}/t/../other/data",))
    check_table(open_table(other.location), files_exist=True)


def test_one_file_in_two_spellings_stays_while_a_snapshot_needs_it(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    [file] = write_files(table, rows(1)).data_files
    AppendFiles(table).append_file(file).commit()
    again = replace(file, file_path=file.file_path.replace("/data/", "//data/./"))
    OverwriteFiles(table).delete_file(file).add_file(again).commit()
    assert len(expire_snapshots(table, older_than_ms=clock.now_ms() + 1).snapshots) == 1
    assert load_table(table.location).scan().to_arrow()["id"].to_pylist() == [1]


def test_metadata_of_a_table_that_was_registered_twice(tmp_path: Path) -> None:
    """Both write to one directory: what has a lower number may be the current version of the other one."""
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh"}
    properties = {"write.metadata.previous-versions-max": "3"}
    first = create("db.first", parse_ddl("id long, category string"), properties=properties, catalog=catalog)
    append(first, rows(1))
    path = str(getattr(first.operations, "metadata_path"))  # noqa: B009
    load_catalog("default", **catalog).register_table("db.second", path)
    append(open_table("db.second", catalog), rows(2))
    UpdateProperties(first).set("write.metadata.delete-after-commit.enabled", "false").commit()
    for number in range(12):
        UpdateProperties(first).set("p", str(number)).commit()
    UpdateProperties(first).set("write.metadata.delete-after-commit.enabled", "true").commit()
    assert remove_old_metadata(first, dry_run=True).files == 11
    assert remove_old_metadata(first).deleted.files == 11
    for name, ids in (("db.first", [1]), ("db.second", [1, 2])):
        assert sorted(load_table(name, catalog).scan().to_arrow()["id"].to_pylist()) == ids
    left = [path.name for path in Path(tmp_path, "wh/db/first/metadata").glob("*.metadata.json")]
    assert len(left) == 3 + 1 + 1


def test_metadata_files_before_the_log(tmp_path: Path) -> None:
    keeping = {
        "write.metadata.previous-versions-max": "3",
        "write.metadata.delete-after-commit.enabled": "false",
    }
    table = make_table(tmp_path / "t", properties=keeping)
    for number in range(9):
        UpdateProperties(table).set("p", str(number)).commit()
    planned = remove_old_metadata(table)
    assert (planned.files, planned.allows, planned.deleted.files) == (6, False, 0)
    UpdateProperties(table).set("write.metadata.delete-after-commit.enabled", "true").commit()
    assert remove_orphans(table).orphans == (), "they are the table's history"
    failpoints.arm("old-metadata-deleted=raise")
    with pytest.raises(FailpointError):
        remove_old_metadata(table)
    failpoints.arm("")
    assert remove_old_metadata(table, dry_run=True).files == 0
    left = sorted(path.name for path in Path(table.location, "metadata").glob("*.json"))
    assert left == [f"v{n}.metadata.json" for n in (10, 11, 8, 9)]
    assert open_table(table.location).properties["p"] == "8"
