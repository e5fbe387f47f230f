"""A SQL catalog: its tables are those of Iceberg's JdbcCatalog and PyIceberg's SqlCatalog, and writers of all kinds agree."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamlake import create_table, load_table
from streamlake.catalog import service
from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.metastores.sql_metastore import SqlMetastore
from streamlake.catalog.open import open_table
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidOptionError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table
from tests.helpers.postgres import PostgresServer
from tests.helpers.sql_schema import V0
from tests.helpers.tables import FAST_CHECKS

sqlalchemy = pytest.importorskip("sqlalchemy")
pyiceberg = pytest.importorskip("pyiceberg.catalog")
PATIENT = {
    **FAST_CHECKS,
    "commit.retry.num-retries": "100",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "50",
}


@pytest.fixture(params=["v0", "v1"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        for statement in V0:
            database.execute(statement)
        if request.param == "v1":
            database.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh"}


def rows(catalog: dict[str, str]) -> list[dict[str, Any]]:
    with sqlite3.connect(catalog["uri"].removeprefix("sqlite:///")) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM iceberg_tables ORDER BY table_name")]


def metastore(catalog: dict[str, str]) -> SqlMetastore:
    opened = service.load_service(catalog)
    assert isinstance(opened, MetastoreCatalog)
    assert isinstance(opened.metastore, SqlMetastore)
    return opened.metastore


def client(catalog: dict[str, str]) -> Any:
    return pyiceberg.load_catalog("default", **catalog)


@pytest.mark.filterwarnings("ignore")
def test_the_row_is_the_one_that_other_clients_write(catalog: dict[str, str]) -> None:
    table = (
        open_table("db.t", catalog) if create_table("db.t", "id long", catalog, format_version=3) else None
    )
    assert table is not None
    first = table.operations.refresh() and table.operations.metadata_path  # type: ignore[attr-defined]
    UpdateProperties(table).set("p", "1").commit()
    (row,) = rows(catalog)
    assert (row["catalog_name"], row["table_namespace"]) == ("default", "db")
    assert row["previous_metadata_location"] == first
    assert row.get("iceberg_type", "TABLE") == "TABLE"
    theirs = client(catalog).load_table("db.t")
    assert theirs.metadata_location == row["metadata_location"]
    assert (theirs.properties["p"], theirs.format_version) == ("1", 3)


@pytest.mark.filterwarnings("ignore")
def test_a_table_of_anothers_making_is_written(catalog: dict[str, str]) -> None:
    import pyarrow as pa

    theirs = client(catalog)
    theirs.create_namespace("db")
    theirs.create_table("db.t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1, 2]}))
    UpdateProperties(open_table("db.t", catalog)).set("p", "1").upgrade_format_version(3).commit()
    assert load_table("db.t", catalog).scan().count() == 2
    assert theirs.load_table("db.t").scan().to_arrow().num_rows == 2


def test_a_view_is_no_table(catalog: dict[str, str], tmp_path: Path) -> None:
    create_table("db.t", "id long", catalog)
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        if "iceberg_type" not in rows(catalog)[0]:
            database.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")
        database.execute(
            "INSERT INTO iceberg_tables VALUES ('default', 'db', 'v', 'file:/v.json', NULL, 'VIEW')"
        )
        database.execute("UPDATE iceberg_tables SET iceberg_type = NULL WHERE table_name = 't'")
    catalog = {**catalog, "echo": "false"}  # another client, which sees the new column
    with pytest.raises(TableNotFoundError, match=r"db\.v"):
        open_table("db.v", catalog)
    with pytest.raises(TableAlreadyExistsError, match="table or view"):
        create_table("db.v", "id long", catalog)
    UpdateProperties(open_table("db.t", catalog)).set("p", "1").commit()
    assert not list((tmp_path / "wh" / "db" / "v" / "metadata").glob("*")), "nothing is left behind"


def test_a_second_table_of_a_name_is_refused_and_leaves_nothing(
    catalog: dict[str, str], tmp_path: Path
) -> None:
    create_table("a.b.t", "id long", catalog)
    with pytest.raises(TableAlreadyExistsError):
        create_table("a.b.t", "id long", catalog)
    assert len(list((tmp_path / "wh" / "a.b" / "t" / "metadata").iterdir())) == 1


def test_names_and_places_that_do_not_fit(catalog: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="255 characters"):
        create_table(f"db.{'t' * 256}", "id long", catalog)
    with pytest.raises(InvalidOptionError, match="not a table name"):
        create_table("t", "id long", catalog)
    homeless = {key: value for key, value in catalog.items() if key != "warehouse"}
    with pytest.raises(InvalidOptionError, match="give the catalog warehouse=DIRECTORY"):
        create_table("db.t", "id long", homeless)
    deep = {**catalog, "warehouse": f"file://{tmp_path}/{'/'.join(['d' * 200] * 5)}"}
    with pytest.raises(InvalidOptionError, match="1000 characters"):
        create_table("db.deep", "id long", deep)
    assert rows(catalog) == []
    create_table("db.größe ☃", "id long", catalog)
    assert load_table("db.größe ☃", catalog).scan().count() == 0


def test_an_error_at_commit_is_looked_into_and_one_before_it_is_certain(
    catalog: dict[str, str], tmp_path: Path
) -> None:
    create_table("db.t", "id long", catalog)
    operations = open_table("db.t", catalog).operations
    engine = metastore(catalog).client.engine
    directory = tmp_path / "wh" / "db" / "t" / "metadata"

    @contextmanager
    def failing(event: str, cause: str) -> Iterator[None]:
        def fail(*arguments: Any) -> None:
            if event == "commit" or arguments[2].startswith("UPDATE"):
                raise sqlalchemy.exc.OperationalError("UPDATE", {}, Exception(cause))

        sqlalchemy.event.listen(engine, event, fail)
        yield
        sqlalchemy.event.remove(engine, event, fail)

    base = operations.refresh()
    # What the broken connection shows of its own transaction is not what the table has.
    with failing("commit", "gone"), pytest.raises(CommitStateUnknownError, match="gone"):
        operations.commit(base, with_properties(base, {"p": "1"}))
    assert len(list(directory.iterdir())) == 2
    for cause, expected in (("disk I/O error", StorageError), ("database is locked", CommitConflictError)):
        base = operations.refresh()
        with failing("before_cursor_execute", cause), pytest.raises(expected, match=cause):
            operations.commit(base, with_properties(base, {"p": "2"}))
    assert len(list(directory.iterdir())) == 2, "nothing was done, so the new file is gone"


@pytest.mark.filterwarnings("ignore")
def test_writers_of_two_kinds_at_once_lose_nothing(catalog: dict[str, str]) -> None:
    create_table("db.t", "id long", catalog, properties=PATIENT)
    each = 50

    def ours() -> None:
        table = open_table("db.t", catalog)
        for number in range(each):
            UpdateProperties(table).set(f"ours-{number}", "1").commit()

    from pyiceberg.exceptions import CommitFailedException

    def theirs() -> None:
        table = client(catalog).load_table("db.t")
        for number in range(each):
            while True:
                try:
                    table.transaction().set_properties({f"theirs-{number}": "1"}).commit_transaction()
                    break
                except CommitFailedException:
                    table.refresh()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(ours), pool.submit(theirs)]:
            done.result()
    properties = load_table("db.t", catalog).properties
    assert sum(key.startswith("ours-") for key in properties) == each
    assert sum(key.startswith("theirs-") for key in properties) == each
    check_table(open_table("db.t", catalog))


def test_postgresql(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """Writers at once lose nothing, and a connection that breaks before COMMIT has done nothing."""
    with postgres_server.database("metastore") as admin:
        uri = f"postgresql+psycopg://postgres@127.0.0.1:{postgres_server.port}/metastore"
        catalog = {"type": "sql", "uri": uri, "warehouse": str(tmp_path), "name": "lake"}
        create_table("db.t", "id long", catalog, format_version=3, properties=PATIENT)

        def write(writer: str) -> None:
            table = open_table("db.t", catalog)
            for number in range(25):
                UpdateProperties(table).set(f"{writer}-{number}", "1").commit()

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(write, "a"), pool.submit(write, "b")]:
                done.result()
        table = open_table("db.t", catalog)
        assert sum(key[:2] in ("a-", "b-") for key in table.properties) == 50
        check_table(table)

        def disconnect(*_: Any) -> None:
            sqlalchemy.event.remove(engine, "commit", disconnect)
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = 'metastore' AND pid <> pg_backend_pid()"
            )

        engine = metastore(catalog).client.engine
        sqlalchemy.event.listen(engine, "commit", disconnect)
        base = table.operations.refresh()
        with pytest.raises(CommitStateUnknownError):
            table.operations.commit(base, with_properties(base, {"p": "1"}))
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'metastore' AND pid <> pg_backend_pid()"
        )
        assert table.operations.refresh() is base
        assert UpdateProperties(table).set("p", "2").commit().properties["p"] == "2"
        engine.dispose()
