"""A database's change stream on a real broker becomes a table: Debezium's JSON through the direct path."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import IcebergTables, KafkaSource, load_table
from streamlake.catalog.open import open_table
from streamlake.cli import main as cli
from streamlake.cli.commands.run import receipt_line
from streamlake.errors import DecodeError, InvalidOptionError
from streamlake.operate.verify.verification import verify
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import KafkaStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamlake.commit.receipt import CommitReceipt
    from tests.helpers.broker import KafkaBroker

ORDERS = "id bigint not null, customer string not null, amount decimal(10,2), note string"
UNAVAILABLE = "__debezium_unavailable_value"


class Database:
    """What Debezium sends of one PostgreSQL table with the default replica identity, and the rows there are."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self.moves: list[tuple[tuple[str, bytes], tuple[bytes | None, bytes | None]]] = []
        self._lsn = 1_000

    def put(self, id: int, customer: str, amount: str, note: str | None = None) -> None:
        op = "u" if id in self.rows else "c"
        self.rows[id] = {"id": id, "customer": customer, "amount": Decimal(amount), "note": note}
        digits = int(Decimal(amount).scaleb(2)).to_bytes(4, "big", signed=True)
        after = {**self.rows[id], "amount": base64.b64encode(digits).decode()}
        self._send(id, {"before": None, "after": after, "op": op})

    def remove(self, id: int) -> None:
        del self.rows[id]
        before = {"id": id, "customer": "", "amount": None, "note": None}
        self._send(id, {"before": before, "after": None, "op": "d"})
        self.log.append((self._key(id), None))

    def put_but_note(self, id: int, customer: str) -> None:
        """An update that leaves the note as it is, and does not tell it."""
        self.rows[id]["customer"] = customer
        self._send(id, {"before": None, "after": self._without_note(id), "op": "u"})

    def move(self, old: int, new: int) -> None:
        """A changed key: two events with one place in the log, linked by their headers."""
        self.rows[new] = {**self.rows.pop(old), "id": new}
        gone = {"id": old, "customer": "", "amount": None, "note": None}
        waiting, self.log = self.log, []
        self._send(old, {"before": gone, "after": None, "op": "d"})
        self._lsn -= 8
        self._send(new, {"before": None, "after": self._without_note(new), "op": "c"})
        headers = [("__debezium.newkey", self._key(new)), ("__debezium.oldkey", self._key(old))]
        self.moves += zip(headers, self.log, strict=True)
        self.log = waiting

    def truncate(self) -> None:
        self.rows.clear()
        self._send(None, {"before": None, "after": None, "op": "t"})

    def _without_note(self, id: int) -> dict[str, Any]:
        digits = int(self.rows[id]["amount"].scaleb(2)).to_bytes(4, "big", signed=True)
        return {**self.rows[id], "amount": base64.b64encode(digits).decode(), "note": UNAVAILABLE}

    def send(self, id: int, **envelope: Any) -> None:
        """An event as it is, which changes no row here."""
        self._send(id, envelope)

    def _send(self, id: int | None, envelope: dict[str, Any]) -> None:
        self._lsn += 8
        source = {
            "connector": "postgresql",
            "db": "shop",
            "schema": "public",
            "table": "orders",
            "lsn": self._lsn,
        }
        value = {**envelope, "source": source, "ts_ms": self._lsn}
        key = None if id is None else self._key(id)
        self.log.append((key, json.dumps(value).encode()))

    def _key(self, id: int) -> bytes:
        return json.dumps({"id": id}).encode()

    def expected(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.rows.values())


class Orders(KafkaStream):
    """The table's topic in two partitions, on its way into an Iceberg table."""

    def __init__(self, broker: KafkaBroker, home: Path) -> None:
        super().__init__(broker, home, partitions=2)
        self.database = Database()

    def source(self, **options: object) -> KafkaSource:
        return super().source(**{"schema": ORDERS, "format": "debezium-json", **options})

    def sink(self, **options: Any) -> Any:
        return super().sink(**{"mode": "upsert", "key": ["id"], **options})

    def flush(self) -> None:
        self.broker.produce(self.topic, self.database.log)
        self.database.log.clear()

    def found(self) -> list[tuple[Any, ...]]:
        rows = load_table(self.location).scan(columns=["id", "customer", "amount", "note"]).to_arrow()
        return sorted(tuple(row.values()) for row in rows.to_pylist())


@pytest.fixture
def orders(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> Orders:
    return Orders(kafka_broker, tmp_path)


def test_the_table_follows_the_database(orders: Orders) -> None:
    database = orders.database
    for number in range(200):
        database.put(number, f"c{number}", f"{number}.50", "first")
    for number in range(0, 200, 3):
        database.put(number, f"c{number}", "-7.25")
    for number in range(0, 200, 5):
        database.remove(number)
    orders.flush()
    orders.run(include=["sequence"])
    assert orders.found() == database.expected()
    for number in range(0, 220, 2):
        database.put(number, "again", "0.01", "second")
    for number in range(1, 200, 10):
        database.remove(number)
    database.put(1, "back", "1.00")
    orders.flush()
    orders.run(include=["sequence"])
    assert orders.found() == database.expected()
    table = open_table(orders.location)
    check_table(table, files_exist=True)
    assert table.schema.column_names == ["id", "customer", "amount", "note", "sequence"]
    assert [table.schema.names_by_id[each] for each in table.schema.identifier_field_ids] == ["id"]
    last = load_table(orders.location).scan(filter="id = 1").to_arrow()["sequence"].to_pylist()
    assert last == [database._lsn]
    verified = verify(orders.location, orders.source(include=["sequence"]), mode="upsert")
    assert verified.is_equal
    assert verified.table_rows == len(database.rows)


def test_values_left_out_changed_keys_and_truncates(orders: Orders) -> None:
    database = orders.database
    for number in range(10):
        database.put(number, f"c{number}", "1.00", f"long text {number}")
    orders.flush()
    orders.run()
    database.put_but_note(1, "Ann")
    database.put(20, "new", "2.00", "another text")
    orders.flush()
    database.move(2, 102)
    database.move(20, 21)
    for header, message in database.moves:
        orders.broker.produce(orders.topic, [message], headers=[header])
    sink = orders.run(orders.sink(key=()))
    assert orders.found() == database.expected()
    assert sum(receipt.counters["filled"] for receipt in sink.receipts) == 3
    database.truncate()
    database.put(3, "again", "3.00", "x")
    orders.flush()
    orders.run()
    assert orders.found() == database.expected()
    check_table(open_table(orders.location), files_exist=True)


class Shards:
    """Topics of tables with one name on several servers, on their way into one table."""

    def __init__(self, broker: KafkaBroker, home: Path) -> None:
        self.broker = broker
        self.home = home
        self.name = f"shards-{home.name}"

    def send(self, shard: int, op: str, lsn: int, id: int | None = None, table: str = "orders") -> None:
        after = None if id is None or op == "d" else {"id": id, "shard": f"s{shard}"}
        before = {"id": id, "shard": None} if op == "d" else None
        source = {
            "connector": "postgresql",
            "name": f"s{shard}",
            "db": "shop",
            "schema": "public",
            "table": table,
            "lsn": lsn,
        }
        value = json.dumps({"before": before, "after": after, "op": op, "source": source}).encode()
        topic = f"{self.name}.s{shard}.orders"
        with self.broker.admin() as admin:
            if topic not in admin.list_topics():
                self.broker.create_topic(topic)
        self.broker.produce(topic, [(None if id is None else json.dumps({"id": id}).encode(), value)])

    def run(self, **options: Any) -> list[CommitReceipt]:
        """All shards into the table that their topics' names end with."""
        pattern = rf"{self.name}\.(?P<shard>s\d)\.(?P<table>.+)"
        given = options.pop("options", {})
        source = KafkaSource(
            self.broker.bootstrap_servers,
            topic_pattern=pattern,
            format="debezium-json",
            schema="id long not null, shard string",
            options=given,
        )
        tables = IcebergTables(f"{self.home}/{{table}}", mode="upsert", key=["id"], **options)
        query = tables.start(
            source, checkpoint_location=f"{self.home}/checkpoint", trigger={"availableNow": True}
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
            if tables.error is not None:
                raise tables.error
        return list(tables.receipts)

    def rows(self, table: str = "orders") -> list[tuple[int, str]]:
        found = load_table(f"{self.home}/{table}").scan().to_arrow().to_pylist()
        return sorted((row["id"], row["shard"]) for row in found)


@pytest.fixture
def shards(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> Shards:
    return Shards(kafka_broker, tmp_path)


def test_a_truncate_takes_no_rows_of_another_database(shards: Shards) -> None:
    shards.send(1, "c", 10, 1)
    shards.send(2, "c", 500, 2)
    shards.run()
    shards.send(1, "t", 1000)
    with pytest.raises(
        DecodeError, match=r"shop\.public\.orders was truncated, and rows of other tables or topics"
    ):
        shards.run()
    assert shards.rows() == [(1, "s1"), (2, "s2")]
    shards.run(on_error="reject")
    assert shards.rows() == [(1, "s1"), (2, "s2")]
    (rejected,) = load_table(f"{shards.home}/orders__rejects").scan().to_arrow().to_pylist()
    assert (rejected["topic"], "was truncated" in rejected["error_message"]) == (
        f"{shards.name}.s1.orders",
        True,
    )
    shards.send(2, "c", 501, 3)
    shards.run(on_error="reject")
    assert shards.rows() == [(1, "s1"), (2, "s2"), (3, "s2")]


def test_a_database_joins_a_table_that_another_one_truncated(shards: Shards) -> None:
    shards.send(1, "c", 10, 1)
    shards.send(1, "t", 1000)
    shards.send(1, "c", 1001, 2)
    shards.run()
    assert shards.rows() == [(2, "s1")]
    shards.send(2, "c", 500, 3)
    with pytest.raises(InvalidOptionError, match=r"was truncated at 1000 of its log.*index rebuild"):
        shards.run()
    assert shards.rows() == [(2, "s1")]
    with pytest.raises(SystemExit) as ended:
        cli.main(["index", "rebuild", f"{shards.home}/orders"])
    assert ended.value.code == 0
    shards.run()
    assert shards.rows() == [(2, "s1"), (3, "s2")]


def test_a_topic_of_several_tables_is_not_one_of_one(shards: Shards) -> None:
    shards.send(1, "c", 10, 1)
    shards.send(1, "c", 11, 2)
    shards.run()
    kept = open_table(f"{shards.home}/orders").properties["streamlake.source-tables"]
    assert json.loads(kept) == {f"{shards.name}.s1.orders": "s1/shop.public.orders"}
    # A start later there is nothing but another table's change.
    shards.send(1, "d", 12, 1, table="products")
    with pytest.raises(
        DecodeError, match=r"offset 2: it is a change of the table 's1/shop\.public\.products'"
    ):
        shards.run()
    shards.send(1, "c", 13, 3)
    wanted = {"source-tables": "shop.public.orders"}
    receipts = shards.run(options=wanted)
    assert shards.rows() == [(1, "s1"), (2, "s1"), (3, "s1")]
    assert sum(receipt.counters.get("other-table-records", 0) for receipt in receipts) == 1
    shards.send(1, "d", 14, 1, table="products")
    shards.send(1, "c", 15, 4)
    *_, receipt = shards.run(options=wanted)
    assert shards.rows() == [(1, "s1"), (2, "s1"), (3, "s1"), (4, "s1")]
    assert receipt.counters["other-table-records"] == 1
    assert "committed, 1 row (1 of other tables), " in receipt_line(receipt)
    head = open_table(f"{shards.home}/orders").metadata.current_snapshot
    assert head.summary["streamlake.other-table-records"] == "1"
    shards.send(1, "d", 16, 1, table="products")
    shards.send(1, "c", 17, 5, table="products")
    *_, receipt = shards.run(options=wanted, on_error="reject")
    place = f"checkpoint {receipt.checkpoint_id} of {shards.home}/orders"
    assert receipt_line(receipt) == f"{place}: empty (2 of other tables)"


def test_rows_that_name_their_tables_come_of_one_source_too(shards: Shards) -> None:
    shards.send(1, "c", 10, 1)
    shards.send(2, "c", 500, 2)

    def run(**options: Any) -> None:
        source = KafkaSource(
            shards.broker.bootstrap_servers,
            topic_pattern=rf"{shards.name}\.s\d\.orders",
            format="debezium-json",
            schema="id long not null, shard string",
        )
        tables = IcebergTables(f"{shards.home}/of_{{row.shard}}", mode="upsert", key=["id"], **options)
        query = tables.start(
            source, checkpoint_location=f"{shards.home}/rows", trigger={"availableNow": True}
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
            if tables.error is not None:
                raise tables.error

    run()
    shards.send(1, "t", 1000)
    shards.send(1, "d", 1001, 1, table="products")
    with pytest.raises(
        DecodeError,
        match=r"was truncated, and rows of other tables|change of the table 's1/shop\.public\.products'",
    ):
        run()
    run(on_error="reject")
    assert (shards.rows("of_s1"), shards.rows("of_s2")) == ([(1, "s1")], [(2, "s2")])
    rejected = load_table(f"{shards.home}/of_unrouted__rejects").scan().to_arrow().to_pylist()
    assert len(rejected) == 2


def test_a_value_that_is_nowhere_stops_the_stream(orders: Orders) -> None:
    database = orders.database
    database.put(1, "Anne", "1.00", "long text")
    orders.flush()
    orders.run()
    after = {"id": 2, "customer": "Ann", "amount": None, "note": UNAVAILABLE}
    database.send(2, before=None, after=after, op="u")
    orders.flush()
    with pytest.raises(DecodeError, match=r"offset \d+: .*column 'note' has no value.*replica identity full"):
        orders.run()
    assert orders.found() == database.expected()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            {"mode": "append", "key": ()},
            {},
            "brings updates and deletes, which mode 'append' cannot carry out",
        ),
        ({"row_kind": "op"}, {}, "say themselves what they do; leave it out"),
        ({}, {"debezium_time_precision_mode": "x"}, "debezium.time-precision-mode"),
        ({"key": ["nr"]}, {}, "the key has the column 'nr'"),
    ],
)
def test_refusals(orders: Orders, arguments: Any, options: Any, message: str) -> None:
    options = {
        name.replace("debezium_time_precision_mode", "debezium.time_precision_mode"): value
        for name, value in options.items()
    }
    with pytest.raises(InvalidOptionError, match=message):
        orders.run(orders.sink(**arguments), **options)


def test_records_without_an_envelope_that_have_some_fields_only(orders: Orders) -> None:
    """Plain JSON: a field that is not there keeps its value in the table, and one that is null becomes null."""
    schema = "id bigint not null, customer string not null, amount decimal(10,2), note string"

    def send(*records: dict[str, Any]) -> None:
        orders.broker.produce(
            orders.topic, [(str(each["id"]).encode(), json.dumps(each).encode()) for each in records]
        )
        orders.run(format="json", schema=schema, partial_update="true")

    send(
        {"id": 1, "customer": "Anne", "amount": "1.50", "note": "a"},
        {"id": 2, "customer": "Bob", "amount": "2.50", "note": "b"},
        {"id": 1, "amount": "3.00"},
    )
    send({"id": 1, "note": None}, {"id": 2, "customer": "Ben"})
    assert orders.found() == [(1, "Anne", Decimal("3.00"), None), (2, "Ben", Decimal("2.50"), "b")]
    with pytest.raises(DecodeError, match=r"column '(customer|amount|note)' has no value"):
        send({"id": 3, "amount": "1.00"})
