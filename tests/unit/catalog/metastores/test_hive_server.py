"""A real Hive metastore: its tables are those of Iceberg's HiveCatalog, and writers of all kinds agree."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamlake import create_table, load_table
from streamlake.catalog import service
from streamlake.catalog.metastores.hive_metastore import HiveMetastore
from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.open import open_table
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.hive_server import HiveServer
from tests.helpers.invariants import check_table
from tests.helpers.tables import FAST_CHECKS, data_file

PATIENT = {
    **FAST_CHECKS,
    "commit.retry.num-retries": "100",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "50",
}


@pytest.fixture
def catalog(hive_server: HiveServer, tmp_path: Path) -> dict[str, str]:
    return {"type": "hive", "uri": hive_server.uri, "warehouse": f"file://{tmp_path}", "name": tmp_path.name}


@pytest.fixture
def name(tmp_path: Path) -> str:
    """The name of a table in a database of the test's own."""
    return f"db_{abs(hash(tmp_path.name))}.t"


def metastore(catalog: dict[str, str]) -> HiveMetastore:
    opened = service.load_service(catalog)
    assert isinstance(opened, MetastoreCatalog)
    assert isinstance(opened.metastore, HiveMetastore)
    return opened.metastore


def entry(catalog: dict[str, str], name: str) -> Any:
    return metastore(catalog)._entry(name)


def test_the_entry_is_the_one_of_icebergs_own_catalog(catalog: dict[str, str], name: str) -> None:
    ddl = "id long not null, at timestamp, s struct<a: decimal(9,2), b: list<string>>"
    create_table(
        name,
        ddl,
        catalog,
        partition_by=["day(at)"],
        sort_by=["id"],
        format_version=3,
        properties={"mine": "1"},
    )
    first = entry(catalog, name)
    table = open_table(name, catalog)
    AppendFiles(table).append_file(data_file(table, 19000, records=7)).commit()
    UpdateProperties(table).remove("mine").set("gc.enabled", "false").commit()
    found = entry(catalog, name)
    assert [(column.name, column.type) for column in found.sd.cols] == [
        ("id", "bigint"),
        ("at", "timestamp with local time zone"),
        ("s", "struct<a:decimal(9,2),b:array<string>>"),
    ]
    assert (found.tableType, found.sd.location) == ("EXTERNAL_TABLE", table.location)
    parameters, snapshot = found.parameters, table.metadata.current_snapshot
    assert snapshot is not None
    expected = {
        "EXTERNAL": "TRUE",
        "table_type": "ICEBERG",
        "metadata_location": table.operations.metadata_path,  # type: ignore[attr-defined]
        "previous_metadata_location": table.metadata.metadata_log[-1].metadata_file,
        "uuid": table.uuid,
        "snapshot-count": "1",
        "current-snapshot-id": str(snapshot.snapshot_id),
        "current-snapshot-timestamp-ms": str(snapshot.timestamp_ms),
        "numFiles": "1",
        "numRows": "7",
        "totalSize": "1000",
        "external.table.purge": "false",
        "write.parquet.compression-codec": "zstd",
    }
    assert {key: parameters.get(key) for key in expected} == expected
    assert "mine" not in parameters
    assert first.parameters["mine"] == "1"
    assert json.loads(parameters["current-schema"])["fields"][0]["name"] == "id"
    assert json.loads(parameters["default-partition-spec"])["fields"][0]["transform"] == "day"
    assert json.loads(parameters["default-sort-order"])["fields"][0]["source-id"] == 1
    assert json.loads(parameters["current-snapshot-summary"])["total-records"] == "7"


def test_a_table_lives_in_it_and_pyiceberg_reads_it(catalog: dict[str, str], name: str) -> None:
    create_table(name, "id long", catalog, format_version=3)
    table = open_table(name, catalog)
    AppendFiles(table).append_file(data_file(table)).commit()
    check_table(open_table(name, catalog))
    theirs = metastore(catalog).client.load_table(name)
    assert theirs.current_snapshot().snapshot_id == table.metadata.current_snapshot_id
    with pytest.raises(TableAlreadyExistsError):
        create_table(name, "id long", catalog)
    with pytest.raises(TableNotFoundError):
        load_table(f"{name}none", catalog)
    base = table.operations.refresh()
    UpdateProperties(open_table(name, catalog)).set("p", "other").commit()
    with pytest.raises(CommitConflictError):
        table.operations.commit(base, with_properties(base, {"p": "1"}))
    metadata = Path(table.location.removeprefix("file:").replace("//", "/"), "metadata")
    assert len(list(metadata.glob("*.metadata.json"))) == 3
    metastore(catalog).client.drop_table(name)
    with pytest.raises(TableNotFoundError):
        table.refresh()


@pytest.mark.filterwarnings("ignore")
def test_writers_of_two_kinds_at_once_lose_nothing(catalog: dict[str, str], name: str) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import CommitFailedException, WaitingForLockException

    create_table(name, "id long", catalog, properties=PATIENT)
    each = 50

    def ours() -> None:
        table = open_table(name, catalog)
        for number in range(each):
            UpdateProperties(table).set(f"ours-{number}", "1").commit()

    def theirs() -> None:
        fast = {
            "lock-check-min-wait-time": "0.05",
            "lock-check-max-wait-time": "0.2",
            "lock-check-retries": "100",
        }
        table = load_catalog(**{**catalog, **fast}).load_table(name)
        for number in range(each):
            while True:
                try:
                    table.transaction().set_properties({f"theirs-{number}": "1"}).commit_transaction()
                    break
                except (CommitFailedException, WaitingForLockException):
                    table.refresh()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(ours), pool.submit(theirs)]:
            done.result()
    table = open_table(name, catalog)
    assert sum(key.startswith("ours-") for key in table.properties) == each
    assert sum(key.startswith("theirs-") for key in table.properties) == each
    check_table(table)


def test_a_lock_that_somebody_else_holds_is_waited_for_and_then_given_up(
    catalog: dict[str, str], name: str
) -> None:
    hasty = {**catalog, "iceberg.hive.lock-timeout-ms": "300"}
    create_table(name, "id long", hasty)
    table = open_table(name, hasty)
    store = metastore(catalog)
    from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType, UnlockRequest

    database, _, short = name.partition(".")
    part = LockComponent(type=LockType.EXCLUSIVE, level=LockLevel.TABLE, dbname=database, tablename=short)
    with store._clients.client() as client:
        held = client.lock(LockRequest(component=[part], user="other", hostname="other", agentInfo="other"))
    base = table.operations.refresh()
    with pytest.raises(CommitConflictError, match="lock for 300 ms"):
        table.operations.commit(base, with_properties(base, {"p": "1"}))
    with store._clients.client() as client:
        client.unlock(UnlockRequest(lockid=held.lockid))
    table.operations.commit(base, with_properties(base, {"p": "1"}))
    from hive_metastore.ttypes import ShowLocksRequest

    with store._clients.client() as client:
        assert client.show_locks(ShowLocksRequest(dbname=database)).locks in ([], None)


def test_what_the_metastore_refuses_is_said_in_its_words(
    catalog: dict[str, str], name: str, tmp_path: Path
) -> None:
    table = create_table(name, "a long, b string", catalog, properties=FAST_CHECKS).table
    files = set(tmp_path.rglob("*.metadata.json"))
    with pytest.raises(StorageError, match=r"incompatible(.|\n)*col\.type\.changes=false"):
        UpdateSchema(table).move_first("b").commit()
    assert set(tmp_path.rglob("*.metadata.json")) == files, "nothing was done, and nothing is left"
    UpdateProperties(table).set("p", "1").commit()
    check_table(open_table(name, catalog))
    with pytest.raises(CommitStateUnknownError, match="Add request failed"):
        create_table(f"{name}2", "id long, ID long", catalog)
