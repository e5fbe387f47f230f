"""A swap whose answer is lost, with each kind of catalog: the table is read before anything else, and no file is deleted.

The faults are in the real thing: the file system's create that fails after or before it has written, the SQL client whose
database connection breaks, the REST server that closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamlake.catalog.metastores.sql_metastore import SqlMetastore
from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import Outcome
from streamlake.errors import CommitStateUnknownError, StorageError
from streamlake.ids import new_uuid
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.local import LocalFileIO
from streamlake.table.table import Table
from tests.helpers.invariants import check_table
from tests.helpers.rest_catalog import RestServer
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES, data_file

PROPERTIES = {**FAST_RETRIES, **FAST_CHECKS, "commit.status-check.num-retries": "2"}


@dataclass
class Kind:
    """A table in a catalog of one kind. `lose(arrives)` makes the answer of the next swap get lost."""

    open: Callable[[], Table]
    lose: Callable[[bool], None]
    deleted: list[str] = field(default_factory=list)


@pytest.fixture(params=["hadoop", "hadoop-catalog", "sql", "rest"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kind]:
    deleted: list[str] = []
    delete = LocalFileIO.delete

    def recorded(io: LocalFileIO, path: str) -> None:
        deleted.append(path)
        delete(io, path)

    monkeypatch.setattr(LocalFileIO, "delete", recorded)
    if request.param.startswith("hadoop"):
        catalog = {"type": "hadoop", "warehouse": str(tmp_path)} if request.param != "hadoop" else None
        yield _hadoop(tmp_path, catalog, monkeypatch, deleted)
        return
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    (tmp_path / "w").mkdir()
    create("db.t", parse_ddl("id long"), properties=PROPERTIES, catalog=sql)
    if request.param == "sql":
        yield _sql(sql, monkeypatch, deleted)
        return
    from pyiceberg.catalog import load_catalog

    with RestServer(load_catalog("default", **sql)).running() as server:
        rest = {"type": "rest", "uri": server.uri}

        def lose(arrives: bool) -> None:
            server.lose_next = arrives

        yield Kind(lambda: open_table("db.t", rest), lose, deleted)
        assert server.lost == 1


def _hadoop(home: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch, deleted: list[str]) -> Kind:
    name = str(home / "t") if catalog is None else "db.t"
    create(name, parse_ddl("id long"), properties=PROPERTIES, catalog=catalog)
    create_exclusive, exists = LocalFileIO.create_exclusive, LocalFileIO.exists

    def lose(arrives: bool) -> None:
        def broken(io: LocalFileIO, path: str, data: bytes) -> None:
            monkeypatch.setattr(LocalFileIO, "create_exclusive", create_exclusive)
            monkeypatch.setattr(LocalFileIO, "exists", unreachable)
            if arrives:
                create_exclusive(io, path, data)
            raise StorageError(f"writing {path}: the connection broke")

        def unreachable(io: LocalFileIO, path: str) -> bool:
            monkeypatch.setattr(LocalFileIO, "exists", exists)
            raise StorageError(f"looking for {path}: the connection broke")

        monkeypatch.setattr(LocalFileIO, "create_exclusive", broken)

    return Kind(lambda: open_table(name, catalog), lose, deleted)


def _sql(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch, deleted: list[str]) -> Kind:
    swap = SqlMetastore.swap

    def lose(arrives: bool) -> None:
        def broken(metastore: SqlMetastore, *arguments: Any) -> Any:
            monkeypatch.setattr(SqlMetastore, "swap", swap)
            if arrives:
                swap(metastore, *arguments)
            raise ConnectionResetError("the database has closed the connection")

        monkeypatch.setattr(SqlMetastore, "swap", broken)

    return Kind(lambda: open_table("db.t", catalog), lose, deleted)


def staged(table: Table, number: int) -> Committable:
    who = CheckpointIdentity("p", "job", number, (str(number),), (str(number + 1),))
    files = [data_file(table, records=5)]
    manifests = write_delta_manifests(table.io, table.locations, table.metadata, files, new_uuid())
    return Committable(who, table.uuid, "main", "append", manifests, 5, 1, 1000)


def test_a_swap_that_arrived_is_a_commit(kind: Kind) -> None:
    table = kind.open()
    committer = Committer(table, "main")
    committer.commit(staged(table, 0))
    committable = staged(table, 1)
    kind.deleted.clear()
    kind.lose(True)
    receipt = committer.commit(committable)
    assert receipt.outcome == Outcome.COMMITTED
    assert not [path for path in kind.deleted if path.endswith((".avro", ".metadata.json"))]
    fresh = kind.open()
    assert [each.snapshot_id for each in fresh.snapshots][1:] == [receipt.snapshot_id]
    check_table(fresh)
    committer.commit(staged(table, 2))
    assert len(kind.open().snapshots) == 3


def test_a_swap_that_did_not_arrive_stays_unknown_and_is_done_again(kind: Kind) -> None:
    table = kind.open()
    committer = Committer(table, "main")
    committer.commit(staged(table, 0))
    committable = staged(table, 1)
    kind.deleted.clear()
    kind.lose(False)
    with pytest.raises(CommitStateUnknownError):
        committer.commit(committable)
    assert kind.deleted == []
    assert all(table.io.exists(each.manifest_path) for each in committable.manifests)
    again = kind.open()
    assert len(again.snapshots) == 1
    successor = Committer(again, "main")
    assert successor.receipt_if_committed(committable.identity) is None
    assert successor.commit(committable, Outcome.RECOVERED).outcome == Outcome.RECOVERED
    assert len(kind.open().snapshots) == 2
    check_table(kind.open())
