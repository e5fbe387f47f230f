"""Expiry on real files: the files of what is left stay, all others go, wherever the process is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import clock, failpoints
from streamlake.catalog.open import create, open_table
from streamlake.errors import (
    CommitStateUnknownError,
    DataInvalidError,
    InvalidOptionError,
    MissingFileError,
    StorageError,
)
from streamlake.failpoints import FailpointError
from streamlake.maintain import expire
from streamlake.maintain.deletion import delete_files
from streamlake.maintain.expire import expire_snapshots
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import load_table
from tests.helpers.batch_write import append
from tests.helpers.faulty_io import Fault, FaultyIO, faulty_table
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.row_deltas import row_delta
from tests.helpers.tables import ALL_MAY_EXPIRE, make_table


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "category": pa.array(["a"] * len(ids))})


@pytest.fixture(params=[2, 3])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Rows appended, changed and removed; a branch and a tag in the past."""
    table = make_table(tmp_path / "t", format_version=request.param)
    append(table, rows(1, 2, 3))
    append(table, rows(4, 5))
    ManageRefs(table).create_tag("tag").create_branch("side").commit()
    row_delta(table, {1}, rows(6)).commit()
    row_delta(table, {2}, rows(7)).commit()
    row_delta(table, {4, 5}).commit()
    append(table, rows(8), branch="side")
    return table


def files(table: Table) -> set[str]:
    return {
        str(path)
        for path in Path(table.location).rglob("*")
        if path.is_file() and not path.name.endswith((".json", ".crc", ".text"))
    }


def contents(location: str) -> dict[int, list[Any]]:
    """The rows of every snapshot."""
    table = load_table(location)
    return {
        each.snapshot_id: sorted(table.scan(snapshot_id=each.snapshot_id).to_arrow()["id"].to_pylist())
        for each in table.snapshots
    }


def everything(table: Table, **given: Any) -> expire.Expiry:
    return expire_snapshots(table, older_than_ms=clock.now_ms() + 1, **given)


def check_left(table: Table, before: dict[int, list[Any]]) -> None:
    """Every snapshot that is left has its rows, and there are files for nothing else."""
    check_table(table, files_exist=True)
    after = contents(table.location)
    assert after == {key: before[key] for key in after}


def test_rows_of_what_is_left_stay_and_files_of_the_rest_go(table: Table) -> None:
    before, had = contents(table.location), files(table)
    planned = everything(table, dry_run=True)
    assert files(table) == had
    assert open_table(table.location).metadata.snapshots == table.metadata.snapshots
    done = everything(table)
    assert (done.snapshots, done.files) == (planned.snapshots, planned.files)
    assert had - files(table) == set(done.files.in_order)
    assert done.deleted.files == len(done.files.in_order) > 0
    check_left(table, before)
    assert {ref.snapshot_id for ref in table.refs.values()} == table.metadata.snapshots_by_id.keys()
    again = everything(table)
    assert (again.snapshots, again.files.in_order) == ((), [])


def test_what_is_left_of_a_table_is_what_its_snapshots_name(table: Table) -> None:
    everything(table, retain_last=2)
    named: set[str] = set()
    for snapshot in table.snapshots:
        assert snapshot.manifest_list is not None
        named.add(snapshot.manifest_list)
        for manifest in table.manifests(snapshot):
            named.add(manifest.manifest_path)
        named.update(entry.data_file.file_path for entry in live_entries(table, snapshot))
    assert files(table) == named


def test_tags_and_branches_are_let_go(table: Table) -> None:
    before = contents(table.location)
    UpdateProperties(table).set("history.expire.max-ref-age-ms", "0").commit()
    done = everything(table)
    assert done.refs == ("side", "tag")
    assert set(table.refs) == {"main"}
    assert len(table.snapshots) == 1
    check_left(table, before)


def test_a_chosen_snapshot(table: Table) -> None:
    before = contents(table.location)
    first = table.snapshots[0].snapshot_id
    assert expire_snapshots(table, snapshot_ids=[first]).snapshots == (first,)
    check_left(table, before)
    with pytest.raises(InvalidOptionError, match="no snapshot 17"):
        expire_snapshots(table, snapshot_ids=[17])


def test_a_table_that_forbids_it(table: Table) -> None:
    UpdateProperties(table).set("gc.enabled", "false").commit()
    with pytest.raises(InvalidOptionError, match=r"gc\.enabled"):
        everything(table)
    assert len(table.snapshots) == 6


STOPS = [
    *((name, 1) for name in ("expiry-planned", "metadata-written", "after-create", "snapshots-expired")),
    *(("expired-files-deleted", nth) for nth in (1, 2, 3)),
]


@pytest.mark.parametrize(("name", "nth"), STOPS)
def test_a_stop_anywhere_loses_nothing(
    name: str, nth: int, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, had = contents(table.location), files(table)
    planned = everything(table, dry_run=True)
    monkeypatch.setattr("streamlake.maintain.deletion._GROUP", 2)
    failpoints.arm(f"{name}=raise,nth={nth}")
    with pytest.raises((FailpointError, CommitStateUnknownError)):
        everything(table)
    failpoints.arm("")
    fresh = open_table(table.location)
    check_left(fresh, before)
    assert had - files(table) <= set(planned.files.in_order)
    everything(fresh)
    check_left(fresh, before)
    assert fresh.metadata.snapshots_by_id.keys() == {ref.snapshot_id for ref in fresh.refs.values()}


def test_files_that_cannot_be_deleted(table: Table) -> None:
    before = contents(table.location)
    faulty = faulty_table(table.location, FaultyIO([Fault("delete", "*/data/*", nth=0)]))
    with pytest.raises(StorageError, match=r"3 snapshots expired, but 1 of \d+ files could not be deleted"):
        everything(faulty)
    check_left(open_table(table.location), before)


def test_all_refused_is_not_tried_for_ever(tmp_path: Path) -> None:
    io = FaultyIO([Fault("delete", nth=0)])
    deleted = delete_files(io, [f"{tmp_path}/{each}" for each in range(1000)], "files")
    assert (deleted.files, deleted.failed) == (0, 1000)
    assert len(io.calls) < 200


def test_metadata_that_cannot_be_read_stops_it_before(table: Table) -> None:
    head = table.manifests(table.current_snapshot)[0]
    Path(head.manifest_path).unlink()
    with pytest.raises(MissingFileError):
        everything(open_table(table.location))
    assert len(open_table(table.location).snapshots) == 6


def test_what_is_missing_of_an_expired_snapshot_is_no_error(table: Table) -> None:
    before = contents(table.location)
    lists = [table.snapshots[at].manifest_list for at in (0, 2)]
    for path in lists:
        assert path is not None
        Path(path).unlink()
    everything(open_table(table.location))
    check_left(open_table(table.location), before)


@pytest.mark.parametrize("place", ["expiry-planned", "snapshots-expired"])
def test_others_commit_meanwhile(place: str, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append, and a tag on a snapshot that was to expire."""
    before = contents(table.location)
    chosen = table.snapshots[3].snapshot_id

    def meanwhile(name: str) -> None:
        if name == place:
            other = open_table(table.location)
            before[append(other, rows(9)).snapshot_id] = [3, 6, 7, 9]
            if place == "expiry-planned":
                ManageRefs(other).create_tag("late", chosen).commit()

    monkeypatch.setattr(expire, "failpoint", meanwhile)
    done = everything(table)
    fresh = open_table(table.location)
    check_left(fresh, before)
    assert (chosen in fresh.metadata.snapshots_by_id) == (place == "expiry-planned")
    assert (chosen in done.snapshots) == (place == "snapshots-expired")


def changes(values: dict[int, int]) -> pa.Table:
    columns = (list(values), list(values.values()))
    return pa.table(
        {name: pa.array(each, pa.int64()) for name, each in zip(("id", "v"), columns, strict=True)}
    )


def upserts(tmp_path: Path, version: int, **given: Any) -> LocalUpserts:
    make_table(tmp_path / "t", "id long, v long", format_version=version)
    return LocalUpserts(str(tmp_path / "t"), key=["id"], **given)


def rows_of(stream: LocalUpserts) -> dict[int, int]:
    found = load_table(stream.location).scan().to_arrow().to_pydict()
    assert len(found["id"]) == len(set(found["id"]))
    return dict(zip(found["id"], found["v"], strict=True))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("delete_mode", ["position", "equality", "copy-on-write"])
def test_a_stream_goes_on_between_expiries(version: int, delete_mode: str, tmp_path: Path) -> None:
    stream = upserts(tmp_path, version, delete_mode=delete_mode)
    expected: dict[int, int] = {}
    for number in range(6):
        part = dict.fromkeys(range(number, number + 20), number)
        stream.checkpoint(changes(part), between=lambda _: everything(open_table(stream.location)) and None)
        expected |= part
        everything(open_table(stream.location))
        if number % 3 == 2:
            stream.restart()
        assert rows_of(stream) == expected
    table = open_table(stream.location)
    check_table(table, files_exist=True)
    assert len(table.snapshots) == 1


@pytest.mark.parametrize("version", [2, 3])
def test_a_staged_checkpoint_is_committed_after_an_expiry(version: int, tmp_path: Path) -> None:
    """Its base is not the head any more, and would have expired."""
    stream = upserts(tmp_path, version)
    stream.checkpoint(changes({1: 1, 2: 2}))
    base = stream.table.metadata.current_snapshot_id
    staged = stream.stage(changes({2: 20, 3: 30}))
    assert staged is not None
    assert staged[0].base_snapshot_id == base
    append(open_table(stream.location), changes({4: 4}))
    append(open_table(stream.location), changes({5: 5}))
    done = everything(open_table(stream.location))
    assert done.held == (base,)
    assert base in open_table(stream.location).metadata.snapshots_by_id
    stream.restart()
    assert len(stream.recover()) == 1
    assert rows_of(stream) == {1: 1, 2: 20, 3: 30, 4: 4, 5: 5}
    assert base in everything(open_table(stream.location)).snapshots
    assert rows_of(stream) == {1: 1, 2: 20, 3: 30, 4: 4, 5: 5}


def test_a_rolled_back_checkpoint_that_is_still_staged_keeps_its_files(tmp_path: Path) -> None:
    stream = upserts(tmp_path, 2)
    stream.checkpoint(changes({1: 1}))
    first = stream.table.metadata.current_snapshot_id
    staged = stream.stage(changes({2: 2}))
    assert staged is not None
    stream.run.commit(*staged)
    table = open_table(stream.location)
    ManageRefs(table).set_branch("main", first).commit()
    everything(table)
    assert len(table.snapshots) == 1
    for manifest in staged[0].manifests:
        assert Path(manifest.manifest_path).exists()
    for path in Path(stream.location, "data").iterdir():
        assert path.exists()
    assert len(list(Path(stream.location, "data").glob("*.parquet"))) == 2


def test_a_damaged_staged_checkpoint_stops_it_before(tmp_path: Path) -> None:
    stream = upserts(tmp_path, 2)
    for number in range(3):
        stream.checkpoint(changes({1: number}))
    (path,) = Path(stream.location, "metadata", "streamlake").rglob("*.json")
    path.write_bytes(b"{")
    with pytest.raises(DataInvalidError, match="is damaged"):
        everything(open_table(stream.location))
    assert len(open_table(stream.location).snapshots) == 3


def test_by_the_loaded_table(table: Table) -> None:
    loaded = load_table(table.location)
    assert loaded.expire_snapshots("30d").snapshots == ()
    assert len(loaded.expire_snapshots(clock.now_ms() + 1, retain_last=2).snapshots) == 2
    assert len(loaded.snapshots) == 4
    with pytest.raises(InvalidOptionError, match="older_than='often' is neither an age"):
        loaded.expire_snapshots("often")


def test_a_stream_goes_on_in_a_catalog_whose_client_erases_parents(tmp_path: Path) -> None:
    """Others have committed since; PyIceberg leaves what is left of the history without a parent."""
    catalog = {
        "type": "sql",
        "name": "c",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": str(tmp_path / "w"),
    }
    create("db.t", parse_ddl("id long, v long"), properties=ALL_MAY_EXPIRE, catalog=catalog)
    stream = LocalUpserts("db.t", key=["id"], opened=lambda name: open_table(name, catalog))
    stream.checkpoint(changes({1: 1, 2: 2}))
    stream.checkpoint(changes({2: 3}))
    for each in range(3):
        append(open_table("db.t", catalog), changes({10 + each: 1}))
    done = everything(open_table("db.t", catalog))
    assert (len(done.snapshots), len(done.held)) == (1, 3)
    stream.restart()
    stream.checkpoint(changes({1: 9}))
    assert len(everything(open_table("db.t", catalog)).snapshots) == 4
    stream.restart()
    stream.checkpoint(changes({2: 9}))
    table = load_table("db.t", catalog)
    rows = table.scan().to_arrow().to_pydict()
    assert dict(zip(rows["id"], rows["v"], strict=True)) == {1: 9, 2: 9, 10: 1, 11: 1, 12: 1}
    check_table(table.table, files_exist=True)
