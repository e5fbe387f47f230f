"""`verify` against a real PostgreSQL: every type that can be compared, what differs, and one snapshot for many tasks."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamlake import verify
from streamlake.cli import main as cli
from streamlake.cli.commands import verify as verify_command
from streamlake.errors import InvalidOptionError, SchemaMismatchError, SourceError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.operate.verify import postgres_table
from streamlake.operate.verify.postgres_table import PostgresTable
from tests.helpers.batch_write import append
from tests.helpers.postgres_types import NAMED_TYPES, TYPES
from tests.helpers.spark import Borrowed
from tests.helpers.tables import make_table

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.helpers.postgres import PostgresServer


@pytest.fixture
def database(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Connection[Any]]:
    with postgres_server.database(f"verify_{uuid.uuid4().hex[:8]}") as connection:
        yield connection


@pytest.fixture
def dsn(postgres_server: PostgresServer, database: Connection[Any]) -> str:
    return postgres_server.dsn(database.info.dbname)


def counts(found: Any) -> tuple[int, int, int, int]:
    return found.missing, found.extra, found.different, found.duplicates


def test_every_type(spark: SparkSession, database: Connection[Any], dsn: str, tmp_path: Path) -> None:
    database.execute(NAMED_TYPES)
    columns = ", ".join(f'"c {at}" {kind}' for at, (kind, *_) in enumerate(TYPES))
    database.execute(f"create table types (id bigint primary key, {columns})")
    database.execute(f"insert into types values (1, {', '.join(value for _, _, value, _ in TYPES)})")
    database.execute("insert into types(id) values (2)")
    ddl = ", ".join(f"`c {at}` {kind}" for at, (_, kind, *_) in enumerate(TYPES))
    table = make_table(tmp_path / "types", f"id bigint not null, {ddl}", format_version=3)
    arrow = schema_to_arrow(table.schema)
    values = [[1, 2], *([value, None] for *_, value in TYPES)]
    rows = [pa.array(pair, part.type) for pair, part in zip(values, arrow, strict=True)]
    append(table, pa.table(rows, schema=arrow))
    found = verify(table, PostgresTable(dsn, "public.types"))
    assert found.differing_columns == {}
    assert (found.is_equal, found.key, found.source_rows, found.table_rows) == (True, ("id",), 2, 2)
    # Each value counts: with the rows exchanged, each column differs.
    database.execute("update types set id = -id; update types set id = 3 + id")
    found = verify(table, PostgresTable(dsn, "types"))
    assert found.differing_columns == {f"c {at}": 2 for at in range(len(TYPES))}


def test_what_the_table_cannot_hold_differs(
    spark: SparkSession, database: Connection[Any], dsn: str, tmp_path: Path
) -> None:
    columns = {
        "d": ("date", "date", "'infinity'"),
        "t": ("time", "time", "'24:00'"),
        "ts": ("timestamp", "timestamp_ntz", "'-infinity'"),
        "tz": ("timestamptz", "timestamptz", "'infinity'"),
        "n": ("numeric(10,2)", "decimal(10,2)", "'NaN'"),
    }
    database.execute(
        f"create table odd (id int primary key, {', '.join(f'{name} {one[0]}' for name, one in columns.items())})"
    )
    database.execute(f"insert into odd values (1, {', '.join(one[2] for one in columns.values())})")
    ddl = ", ".join(f"{name} {one[1]}" for name, one in columns.items())
    table = make_table(tmp_path / "odd", f"id int not null, {ddl}")
    arrow = schema_to_arrow(table.schema)
    append(
        table,
        pa.table([pa.array([1 if part.name == "id" else None], part.type) for part in arrow], schema=arrow),
    )
    found = verify(table, PostgresTable(dsn, "odd"))
    assert found.differing_columns == dict.fromkeys(columns, 1)
    assert set(found.examples["different"][0]["columns"]) == set(columns)
    database.execute("alter table odd alter column n type text using 'x'")
    with pytest.raises(
        InvalidOptionError, match=r"column 'n' is text in .* odd and decimal\(10, 2\) in .*columns"
    ):
        verify(table, PostgresTable(dsn, "odd"))
    database.execute("alter table odd alter column n type numeric using 1.234")
    with pytest.raises(SchemaMismatchError, match=r"odd: values of the column 'n' cannot be"):
        verify(table, PostgresTable(dsn, "odd"), columns=["n"])


@pytest.fixture
def people(database: Connection[Any], tmp_path: Path) -> str:
    """The location of a table that is equal to `shop.people`, 5,000 rows with a composite key."""
    database.execute(
        "create schema shop; create table shop.people (part text, id int, name text, primary key (part, id))"
    )
    database.execute(
        "insert into shop.people select 'p' || n % 3, n, 'name ' || n from generate_series(1, 5000) n"
    )
    table = make_table(tmp_path / "people", "part string not null, id int not null, name string, old string")
    numbers = range(1, 5001)
    rows = {
        "part": [f"p{n % 3}" for n in numbers],
        "id": pa.array(numbers, pa.int32()),
        "name": [f"name {n}" for n in numbers],
        "old": ["before it was dropped"] * 5000,
    }
    append(table, pa.table(rows))
    return table.location


def test_many_tasks_read_one_state(
    spark: SparkSession,
    database: Connection[Any],
    dsn: str,
    people: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_table, "_PART_BYTES", 65_536)
    source = PostgresTable(dsn, "shop.people")
    found = verify(people, source)
    assert (found.is_equal, found.table_rows, found.key) == (True, 5000, ("part", "id"))
    assert found.notes == ("the column 'old' is not in PostgreSQL: left out",)
    assert found.source.endswith(f"/{database.info.dbname} shop.people")
    with source.opened() as state:
        assert len(state.parts) >= 4
        # Whoever writes now is not seen by this state's readers.
        database.execute("insert into shop.people select 'new', n from generate_series(1, 5000) n")
        monkeypatch.setattr(PostgresTable, "opened", lambda _: contextlib.nullcontext(state))
        assert verify(people, source).is_equal


def test_differences_are_told(spark: SparkSession, database: Connection[Any], dsn: str, people: str) -> None:
    database.execute("update shop.people set name = 'another' where id in (7, 8)")
    database.execute(
        "delete from shop.people where id = 9; update shop.people set part = 'moved' where id = 10"
    )
    found = verify(people, PostgresTable(dsn, "shop.people"))
    assert counts(found) == (1, 2, 2, 0)
    assert dict(found.differing_columns) == {"name": 2}
    assert found.examples["missing"][0]["key"] == {"part": "moved", "id": 10}
    assert {each["key"]["id"] for each in found.examples["extra"]} == {9, 10}
    assert found.examples["different"][0]["columns"]["name"]["source"] == "another"
    assert verify(people, PostgresTable(dsn, "shop.people"), columns=["part"]).different == 0
    database.execute("alter table shop.people add column more int")
    with pytest.raises(InvalidOptionError, match=r"has the column 'more', which .* lacks"):
        verify(people, PostgresTable(dsn, "shop.people"))


def test_partitioned_tables_and_views(
    spark: SparkSession, database: Connection[Any], dsn: str, people: str
) -> None:
    database.execute(
        "create table halves (part text, id int, name text, primary key (part, id)) partition by range (id)"
    )
    database.execute("create table low partition of halves for values from (0) to (2000)")
    database.execute("create table high partition of halves for values from (2000) to (9999)")
    database.execute("insert into halves select * from shop.people; create view seen as select * from halves")
    for name in ("halves", "seen"):
        assert verify(people, PostgresTable(dsn, name), key=["part", "id"]).is_equal, name


def test_refusals(spark: SparkSession, dsn: str, people: str, postgres_server: PostgresServer) -> None:
    with pytest.raises(InvalidOptionError, match=r"no table people in the database verify_.*schema\.table"):
        verify(people, PostgresTable(dsn, "people"))
    with pytest.raises(SourceError, match=r"PostgreSQL says: .*nothing_here"):
        verify(people, PostgresTable(postgres_server.dsn("nothing_here"), "people"))


def test_the_command(
    spark: SparkSession,
    database: Connection[Any],
    dsn: str,
    people: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verify_command, "spark_session", lambda *_, **__: Borrowed(spark))

    def call(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["verify", people, "--postgres", dsn, *arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code

    assert call("--postgres-table", "shop.people") == 0
    assert "equal" in capsys.readouterr().out
    database.execute("delete from shop.people where id = 1")
    assert call("--postgres-table", "shop.people", "--json") == 1
    assert json.loads(capsys.readouterr().out)["extra"] == 1
    assert call() != 0
    assert "there is no table people" in capsys.readouterr().err
    assert call("--against", "table:x") != 0
    assert "--postgres and --against both name the source" in capsys.readouterr().err
