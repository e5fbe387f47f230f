"""The real chain: PostgreSQL -> Debezium in Kafka Connect -> Kafka -> streamlake -> Iceberg, while drivers are killed.

`STREAMLAKE_CDC_TRANSACTIONS=12000` makes it shorter: most of what is left then are starts of Spark.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamlake import load_table, verify
from streamlake.catalog.open import open_table
from streamlake.cli import main as cli
from streamlake.cli.commands import verify as verify_command
from streamlake.errors import TableNotFoundError
from streamlake.operate.verify.postgres_table import PostgresTable
from tests.helpers import rings
from tests.helpers.command_line import command, environment
from tests.helpers.connect import KafkaConnect
from tests.helpers.invariants import check_table
from tests.helpers.postgres_types import NAMED_TYPES, TOASTED, TOASTED_AS_NULL
from tests.helpers.processes import kill_group, tail, wait_until
from tests.helpers.rings import PartUnavailableError
from tests.helpers.shop_database import SCHEMA_CHANGES, TABLES, ShopDatabase
from tests.helpers.spark import Borrowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker
    from tests.helpers.postgres import PostgresServer

TRANSACTIONS = int(os.environ.get("STREAMLAKE_CDC_TRANSACTIONS", "200000"))
DEATHS = len(SCHEMA_CHANGES)
HASTY = 1
"""The driver that is killed without waiting for a checkpoint of its own."""
PATIENCE_SECONDS = 150 + TRANSACTIONS / 500
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONNECTOR = {
    "value_converter": JSON,
    "value_converter_schemas_enable": "true",
    "interval_handling_mode": "string",
}
NOT_FOR_SPARK = {"zoo"}
"""Iceberg's Spark runtime reads no table with a column of times of day."""
NOTES = {"accounts": ["the column 'opened' is not in PostgreSQL: left out"]}


PIPELINE = r"""
name: shop
source:
  kafka:
    bootstrap-servers: {servers}
    topic-pattern: '{prefix}\.(?P<table>[^.]+)'
    format: debezium-json
    options:
      starting-offsets: earliest
      max-offsets-per-trigger: {batch}
sink:
  table: {home}/tables/{{table}}
  mode: upsert
  schema-evolution: full
  tables:
    {home}/tables/orders: {{partition-by: [category]}}
checkpoint: {home}/checkpoint
trigger: {trigger}
spark:
  master: local[2]
  config:
    spark.driver.memory: 1g
    spark.sql.codegen.wholeStage: "false"
    spark.sql.codegen.factoryMode: NO_CODEGEN
"""


class Driver:
    """`streamlake run` in a process of its own, started and killed at will."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home = home
        self.log = home / "driver.log"
        self.file = home / "cdc.yaml"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, trigger: str = "{processing-time: 0 seconds}") -> None:
        file = self.file
        file.write_text(PIPELINE.format(home=self.home, trigger=trigger, **self._settings))
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command("run", file),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment({"SPARK_LOCAL_IP": "127.0.0.1"}),
                cwd=self.home,
                start_new_session=True,
            )

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the driver has ended by itself:\n{tail(self.log)}"
        kill_group(self._process)

    def finish(self) -> None:
        """Run until everything is in the tables."""
        self.start("available-now")
        assert self._process is not None
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        finally:
            kill_group(self._process)
        assert code == 0, f"the driver has failed:\n{tail(self.log)}"

    def snapshots(self) -> int:
        """How many snapshots all tables have."""
        count = 0
        for table in TABLES:
            try:
                count += len(open_table(str(self.home / "tables" / table.name)).metadata.snapshots)
            except TableNotFoundError:
                continue
        return count

    def is_past(self, snapshots: int) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the driver has ended by itself:\n{tail(self.log)}"
        return self.snapshots() > snapshots

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            kill_group(self._process)


@pytest.fixture
def connect(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[KafkaConnect]:
    worker = KafkaConnect(tmp_path / "connect", kafka_broker.bootstrap_servers)
    try:
        worker.__enter__()
    except PartUnavailableError as error:
        rings.give_up("kafka", error)
    try:
        yield worker
    finally:
        worker.__exit__()


@pytest.fixture
def shop(postgres_server: PostgresServer) -> Iterator[ShopDatabase]:
    with postgres_server.database(f"shop_{uuid.uuid4().hex[:8]}") as connection:
        shop = ShopDatabase(postgres_server, connection.info.dbname, moves=True, truncates=True)
        shop.fill()
        yield shop


@pytest.mark.crash
@pytest.mark.timeout(int(4 * PATIENCE_SECONDS))
def test_the_tables_are_the_database(
    iceberg_spark: SparkSession,
    kafka_broker: KafkaBroker,
    connect: KafkaConnect,
    shop: ShopDatabase,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    rng = random.Random(seed)
    told = _Clock()
    batch = max(4_000, TRANSACTIONS // 5)
    driver = Driver(
        tmp_path, servers=kafka_broker.bootstrap_servers, prefix=rf"{shop.name}\.public", batch=batch
    )
    follows = connect.connector(postgres_server, shop.name, shop.name, partitions=2, **CONNECTOR)
    with follows, driver:
        _wait_for_topics(kafka_broker, shop)
        told("first rows are in their topics")
        for number, changes in enumerate(SCHEMA_CHANGES):
            shop.start_load(TRANSACTIONS // (DEATHS + 1), seed=rng.randrange(1000))
            shop.execute(*changes)
            before = driver.snapshots()
            driver.start()
            if number == HASTY:
                time.sleep(rng.uniform(4, 10))
            else:
                wait_until(
                    partial(driver.is_past, before), PATIENCE_SECONDS, "a checkpoint of the new driver"
                )
                time.sleep(rng.uniform(0, 1.5))
            driver.kill()
            shop.finish_load()
            told("a driver was killed")
        shop.start_load(TRANSACTIONS // (DEATHS + 1), seed=rng.randrange(1000))
        shop.finish_load()
        told("the load is done")
        changes = _wait_for_changes(kafka_broker, connect, shop)
        told(f"{changes} changes are in the topics")
        driver.finish()
        told("everything is in the tables")
    monkeypatch.setattr(verify_command, "spark_session", lambda *_, **__: Borrowed(iceberg_spark))
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--pipeline", str(tmp_path / "cdc.yaml"), "--postgres", shop.dsn, "--json"])
    printed = capsys.readouterr()
    print(printed.err, file=sys.stderr)
    found = {Path(each["table"]).name: each for each in json.loads(printed.out)["tables"]}
    assert {name: each for name, each in found.items() if not each["is_equal"]} == {}
    assert ended.value.code == 0
    assert set(found) == {"finished", *(table.name for table in TABLES)}
    for table in TABLES:
        assert found[table.name]["key"] == list(table.key)
        assert found[table.name]["notes"] == NOTES.get(table.name, [])
        location = str(tmp_path / "tables" / table.name)
        check_table(open_table(location), files_exist=True)
        if table.name not in NOT_FOR_SPARK:
            theirs = iceberg_spark.read.format("iceberg").load(location).toArrow()
            assert _rows(theirs) == _rows(load_table(location).scan().to_arrow()), table.name
    told("compared")


def test_values_that_an_update_leaves_alone(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    connect: KafkaConnect,
    postgres_server: PostgresServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every type that can be stored out of line (TOASTed): what is left out of an update stays, and where Debezium says null for
    it `check` warns, and REPLICA IDENTITY FULL helps."""
    name = f"toasted_{uuid.uuid4().hex[:8]}"
    tables = {"kept": TOASTED, "whole": [*TOASTED, *TOASTED_AS_NULL], "bare": TOASTED_AS_NULL}
    assert len(tables["whole"]) == 31
    with postgres_server.database(name) as connection:
        connection.execute("create extension hstore")
        connection.execute(NAMED_TYPES)
        for table, types in tables.items():
            columns = ", ".join(f"c{at} {kind}" for at, (kind, *_) in enumerate(types))
            connection.execute(f"create table {table} (id int primary key, n int, {columns})")
            for at in range(len(types)):
                connection.execute(f"alter table {table} alter column c{at} set storage external")
        connection.execute("alter table whole replica identity full")
        options = {**CONNECTOR, "decimal_handling_mode": "precise"}
        driver = Driver(
            tmp_path, servers=kafka_broker.bootstrap_servers, prefix=rf"{name}\.public", batch=10_000
        )
        with connect.connector(postgres_server, name, name, **options), driver:
            for table, types in tables.items():
                for row, place in ((1, 1), (2, 2), (3, 1)):
                    if row == 3:
                        # Rows 1 and 2 are updated, row 3 comes with all its values: it says what row 1 is to be.
                        connection.execute(f"update {table} set n = n + 1")
                    values = ", ".join(each[place] for each in types)
                    connection.execute(f"insert into {table} values ({row}, 0, {values})")
            wait_until(
                lambda: all(_count(kafka_broker, f"{name}.public.{table}") == 5 for table in tables),
                PATIENCE_SECONDS,
                "five changes of each table",
            )
            driver.finish()
        for table, types in tables.items():
            found = {
                row["id"]: row
                for row in load_table(str(tmp_path / "tables" / table)).scan().to_arrow().to_pylist()
            }
            assert [found[row]["n"] for row in (1, 2, 3)] == [1, 1, 0]
            lost = [kind for at, (kind, *_) in enumerate(types) if found[1][f"c{at}"] != found[3][f"c{at}"]]
            assert lost == ([kind for kind, *_ in TOASTED_AS_NULL] if table == "bare" else [])
            assert None not in [found[row][f"c{at}"] for row in (2, 3) for at in range(len(types))]
            if table != "bare":
                compared = [
                    f"c{at}" for at, (kind, *_) in enumerate(types) if kind not in ("hstore", "polygon")
                ]
                source = PostgresTable(postgres_server.dsn(name), f"public.{table}")
                verified = verify(str(tmp_path / "tables" / table), source, columns=["n", *compared])
                assert (verified.is_equal, verified.table_rows) == (True, 3), verified.examples
        with pytest.raises(SystemExit):
            cli.main(["check", str(driver.file), "--json"])
        told = [
            each["told"]
            for each in json.loads(capsys.readouterr().out)["points"]
            if each["verdict"] == "warning"
        ]
        (warned,) = [text for text in told if "replica identity full" in text]
        # An array of inet has the schema of an array of text, of which Debezium has a placeholder.
        nulled = [f"c{at}" for at, (kind, *_) in enumerate(TOASTED_AS_NULL) if kind != "inet[]"]
        assert "/tables/bare" in warned
        assert f"types of {', '.join(nulled)} Debezium" in warned


def _count(broker: KafkaBroker, topic: str) -> int:
    with broker.admin() as admin:
        return sum(broker.end_offsets(topic).values()) if topic in admin.list_topics() else 0


def _wait_for_topics(broker: KafkaBroker, shop: ShopDatabase) -> None:
    waiting = {f"{shop.name}.public.{table.name}" for table in TABLES}

    def are_there() -> bool:
        with broker.admin() as admin:
            return waiting <= set(admin.list_topics())

    wait_until(are_there, 60, f"the topics {sorted(waiting)}")


def _wait_for_changes(broker: KafkaBroker, connect: KafkaConnect, shop: ShopDatabase) -> int:
    """Until every change so far is in the topics; how many records that makes.

    Debezium sends in the order of the log, but to many partitions: what is on its way beside the last change comes soon.
    """
    shop.execute("create table finished (id int primary key)", "insert into finished values (1)")
    last = f"{shop.name}.public.finished"

    def has_come() -> bool:
        connect.check(shop.name)
        with broker.admin() as admin:
            return last in admin.list_topics()

    wait_until(
        has_come, PATIENCE_SECONDS, f"the last change; in the topics are {_records(broker, shop)} records"
    )
    before = -1
    while before != (now := _records(broker, shop)):
        before = now
        time.sleep(1)
    return now


def _records(broker: KafkaBroker, shop: ShopDatabase) -> int:
    return sum(sum(broker.end_offsets(f"{shop.name}.public.{table.name}").values()) for table in TABLES)


def _rows(table: pa.Table) -> Counter[str]:
    """The rows of a table, by whomever it was read; a UUID is text to Spark."""
    columns = []
    for name in sorted(table.column_names):
        values = table.column(name).to_pylist()
        if pa.types.is_fixed_size_binary(table.schema.field(name).type):
            values = [value and str(uuid.UUID(bytes=bytes(value))) for value in values]
        columns.append(values)
    return Counter(map(repr, zip(*columns, strict=True)))


class _Clock:
    """Tells how long the steps take, for those who look at the output."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, what: str) -> None:
        now = time.monotonic()
        print(f"{now - self._last:6.1f} s  {what}", file=sys.stderr)
        self._last = now
