"""The real chain of the MySQL family: MariaDB -> Debezium in Kafka Connect -> Kafka -> streamlake -> Iceberg.

What the tables are to hold is asked of MariaDB itself, and of each type one value stands here as it is written and as it is read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from streamlake import load_table
from streamlake.catalog.open import open_table
from tests.e2e.test_cdc_chain import JSON, Driver
from tests.helpers import rings
from tests.helpers.connect import KafkaConnect
from tests.helpers.invariants import check_table
from tests.helpers.jars import DEBEZIUM_MARIADB
from tests.helpers.mariadb import MariaDbServer
from tests.helpers.processes import wait_until
from tests.helpers.rings import PartUnavailableError

if TYPE_CHECKING:
    from tests.helpers.broker import KafkaBroker

WAIT_SECONDS = 120
CONNECTOR = {
    "value_converter": JSON,
    "value_converter_schemas_enable": "true",
    "bigint_unsigned_handling_mode": "precise",
}
TYPES: list[tuple[str, str, Any]] = [
    # MariaDB's type, a value in SQL, and the value in the table
    ("boolean", "true", 1),
    ("tinyint", "-128", -128),
    ("tinyint unsigned", "255", 255),
    ("smallint unsigned", "65535", 65535),
    ("mediumint", "-8388608", -8388608),
    ("int", "-2147483648", -2147483648),
    ("int unsigned", "4294967295", 4294967295),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("bigint unsigned", "18446744073709551615", Decimal(2**64 - 1)),
    ("float", "0.5", 0.5),
    ("double", "0.1", 0.1),
    ("decimal(12,2)", "-0.50", Decimal("-0.50")),
    (
        "decimal(38,10)",
        "1234567890123456789012345678.0123456789",
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    ("bit(1)", "b'1'", True),
    ("bit(12)", "b'100000000001'", b"\x01\x08"),
    ("char(5)", "'ab'", "ab"),
    ("varchar(40)", "'é, \\n\"日本 \U0001f600'", 'é, \n"日本 \U0001f600'),
    ("text", "''", ""),
    ("longtext", "repeat('text', 5000)", "text" * 5000),
    ("binary(4)", "x'01000200'", b"\x01\x00\x02\x00"),
    ("varbinary(9)", "x'00ff27'", b"\x00\xff'"),
    ("blob", "repeat(x'ab', 300)", b"\xab" * 300),
    ("date", "'2026-01-02'", date(2026, 1, 2)),
    ("time", "'23:59:59'", time(23, 59, 59)),
    ("time(6)", "'12:30:00.123456'", time(12, 30, 0, 123456)),
    ("datetime", "'2026-01-02 03:04:05'", datetime(2026, 1, 2, 3, 4, 5)),
    ("datetime(6)", "'1500-02-28 00:00:00.000001'", datetime(1500, 2, 28, 0, 0, 0, 1)),
    # The server's time zone is 5:45 hours ahead.
    (
        "timestamp(6) null",
        "'2026-01-02 03:04:05.678901'",
        datetime(2026, 1, 1, 21, 19, 5, 678901, timezone.utc),
    ),
    ("year", "2026", 2026),
    ("json", '\'{"b": 1, "a": null}\'', '{"b": 1, "a": null}'),
    ("enum('a','b')", "'b'", "b"),
    ("set('a','b','c')", "'a,c'", "a,c"),
    ("point", "point(1.5, -2)", bytes.fromhex("0101000000000000000000f83f00000000000000c0")),
]


@pytest.fixture
def mariadb() -> Iterator[MariaDbServer]:
    server = MariaDbServer()
    try:
        server.__enter__()
    except PartUnavailableError as error:
        rings.give_up("mariadb", error)
    try:
        yield server
    finally:
        server.__exit__()


@pytest.fixture
def connect(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[KafkaConnect]:
    worker = KafkaConnect(tmp_path / "connect", kafka_broker.bootstrap_servers, DEBEZIUM_MARIADB)
    try:
        worker.__enter__()
    except PartUnavailableError as error:
        rings.give_up("kafka", error)
    try:
        yield worker
    finally:
        worker.__exit__()


class Topics:
    """The topics of the tables of one connector."""

    def __init__(self, broker: KafkaBroker, connect: KafkaConnect, name: str) -> None:
        self._broker = broker
        self._connect = connect
        self._name = name

    def wait(self, **counts: int) -> None:
        """Until the topics of these tables have so many records."""
        for table, count in counts.items():
            topic = f"{self._name}.shop.{table}"
            wait_until(partial(self._has, topic, count), WAIT_SECONDS, f"{count} records of {topic}")

    def sources(self, table: str) -> list[dict[str, Any]]:
        """What the changes of a table say of their place in the log."""
        part = TopicPartition(f"{self._name}.shop.{table}", 0)
        consumer = KafkaConsumer(bootstrap_servers=self._broker.bootstrap_servers)
        try:
            consumer.assign([part])
            consumer.seek_to_beginning(part)
            end = consumer.end_offsets([part])[part]
            found: list[dict[str, Any]] = []
            while consumer.position(part) < end:
                for record in consumer.poll(1_000).get(part, ()):
                    found += [] if record.value is None else [json.loads(record.value)["payload"]["source"]]
            return found
        finally:
            consumer.close()

    def _has(self, topic: str, count: int) -> bool:
        self._connect.check(self._name)
        with self._broker.admin() as admin:
            return topic in admin.list_topics() and sum(self._broker.end_offsets(topic).values()) >= count


@pytest.mark.timeout(900)
def test_the_tables_are_the_database(
    kafka_broker: KafkaBroker, connect: KafkaConnect, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    name = f"mariadb_{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka_broker, connect, name)
    columns = ", ".join(f"c{at} {kind}" for at, (kind, *_) in enumerate(TYPES))
    values = ", ".join(value for _, value, _ in TYPES)
    mariadb.execute(
        "create database shop",
        f"create table shop.zoo (id int primary key, {columns})",
        f"insert into shop.zoo values (1, {values})",
        "insert into shop.zoo (id) values (2)",
        "create table shop.accounts (id bigint primary key, owner varchar(40) not null, balance decimal(14,2), note text, "
        "at datetime(6))",
        "insert into shop.accounts select seq, concat('owner ', seq), seq / 7, repeat('n', 3000), now(6) from "
        "shop.seq_1_to_50",
        "create table shop.scratch (id int primary key, v varchar(9))",
        "insert into shop.scratch values (1, 'first'), (2, 'first')",
    )
    driver = Driver(tmp_path, servers=kafka_broker.bootstrap_servers, prefix=rf"{name}\.shop", batch=10_000)
    with connect.mariadb_connector(mariadb.port, "shop", name, **CONNECTOR), driver:
        topics.wait(zoo=2, accounts=50, scratch=2)
        mariadb.execute(
            f"insert into shop.zoo values (3, {values})",
            *(f"update shop.accounts set balance = balance + {at} where id = {at}" for at in range(1, 51)),
            # In the new file positions begin anew: by them alone what follows would be older.
            "flush binary logs",
            *(
                f"update shop.accounts set owner = 'later', balance = -{at} where id = {at}"
                for at in range(1, 31)
            ),
            "alter table shop.accounts add column vip tinyint(1), modify balance decimal(16,2)",
            "update shop.accounts set vip = id % 2, balance = 12345678901234.25 where id > 40",
            "truncate shop.scratch",
            "insert into shop.scratch values (2, 'again')",
        )
        topics.wait(zoo=3, accounts=140, scratch=4)
        driver.finish()
        _compare(mariadb, tmp_path)
        connect.restart(name)
        mariadb.execute(
            "flush binary logs",
            "alter table shop.accounts drop column note",
            "update shop.accounts set balance = null, at = null where id <= 5",
            "delete from shop.accounts where id between 6 and 9",
            "update shop.accounts set id = 1000 + id where id between 10 and 12",
            "insert into shop.accounts (id, owner) values (9, 'back')",
            "update shop.zoo set id = 4 where id = 1",
        )
        # A delete has a tombstone behind it, and a changed key is a delete and an insert.
        topics.wait(accounts=140 + 5 + 8 + 9 + 1, zoo=6)
        driver.finish()
        _compare(mariadb, tmp_path)
    places = topics.sources("accounts")
    assert len({place["file"] for place in places}) == 3
    assert {place["gtid"] is None for place in places if place["snapshot"] == "false"} == {False}
    zoo = {
        row["id"]: row for row in load_table(str(tmp_path / "tables" / "zoo")).scan().to_arrow().to_pylist()
    }
    assert sorted(zoo) == [2, 3, 4]
    for row, wanted in (
        (3, [value for *_, value in TYPES]),
        (4, [value for *_, value in TYPES]),
        (2, [None] * len(TYPES)),
    ):
        found = {kind: zoo[row][f"c{at}"] for at, (kind, *_) in enumerate(TYPES)}
        assert found == {kind: value for (kind, *_), value in zip(TYPES, wanted, strict=True)}


def _compare(server: MariaDbServer, home: Path) -> None:
    """Each table has the rows that the database has."""
    for table in ("accounts", "scratch"):
        location = str(home / "tables" / table)
        names = [name for (name, *_) in server.rows(f"show columns from shop.{table}")]
        theirs = server.rows(
            f"select {', '.join(f'`{name}`' for name in names)} from shop.{table} order by id"
        )
        ours = load_table(location).scan(columns=names).to_arrow().sort_by("id").to_pylist()
        assert [tuple(row[name] for name in names) for row in ours] == theirs, table
        check_table(open_table(location), files_exist=True)
