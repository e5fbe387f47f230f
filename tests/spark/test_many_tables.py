"""One query writes the topics of a real broker into a table each."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import IcebergTables, KafkaSource, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.errors import LineageError, StreamlakeError
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.schema.update_schema import UpdateSchema
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import AVAILABLE_NOW, RUN_SECONDS
from tests.spark.test_sink_lineage import recover

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker


class Shop:
    """Change streams of tables, one topic each with two partitions: what Debezium sends without schemas."""

    def __init__(self, broker: KafkaBroker, home: Path) -> None:
        self.broker = broker
        self.home = home
        self.prefix = broker.create_topic(partitions=1)
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        self._lsn = 100

    def topic(self, table: str) -> str:
        return f"{self.prefix}.public.{table}"

    def put(self, table: str, *rows: dict[str, Any]) -> None:
        self._made(table)
        for row in rows:
            self.rows[table][row["id"]] = row
        self.broker.produce(self.topic(table), [self._event(row, "u", after=row) for row in rows])

    def remove(self, table: str, *ids: int) -> None:
        gone = [self.rows[table].pop(id) for id in ids]
        self.broker.produce(self.topic(table), [self._event(row, "d", before=row) for row in gone])

    def send(self, table: str, value: bytes) -> None:
        self._made(table)
        self.broker.produce(self.topic(table), [(b'{"id":1}', value)])

    def run(self, **options: Any) -> IcebergTables:
        tables = IcebergTables(str(self.home / "{table}"), mode="upsert", **options)
        source = KafkaSource(
            self.broker.bootstrap_servers,
            topic_pattern=rf"{self.prefix}\.public\.(?P<table>.+)",
            format="debezium-json",
        )
        query = tables.start(source, checkpoint_location=str(self.home / "checkpoint"), trigger=AVAILABLE_NOW)
        try:
            assert query.awaitTermination(RUN_SECONDS)
        finally:
            query.stop()
        return tables

    def found(self, table: str) -> list[dict[str, Any]]:
        rows = load_table(str(self.home / table)).scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: row["id"])

    def expected(self, table: str) -> list[dict[str, Any]]:
        return sorted(self.rows[table].values(), key=lambda row: row["id"])

    def check(self) -> None:
        for table in self.rows:
            assert self.found(table) == self.expected(table), table
            check_table(open_table(str(self.home / table)), files_exist=True)

    def _made(self, table: str) -> None:
        if table not in self.rows:
            self.rows[table] = {}
            self.broker.create_topic(self.topic(table), partitions=2)

    def _event(
        self, row: dict[str, Any], op: str, before: Any = None, after: Any = None
    ) -> tuple[bytes, bytes]:
        self._lsn += 8
        source = {
            "connector": "postgresql",
            "db": "shop",
            "schema": "public",
            "table": "t",
            "lsn": self._lsn,
        }
        event = {"before": before, "after": after, "op": op, "source": source, "ts_ms": self._lsn}
        return json.dumps({"id": row["id"]}).encode(), json.dumps(event).encode()


@pytest.fixture
def shop(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> Shop:
    return Shop(kafka_broker, tmp_path)


def test_every_topic_becomes_a_table_that_follows(shop: Shop) -> None:
    for at in range(5):
        shop.put(
            f"t{at}", *({"id": n, f"v{at}": f"{at}-{n}", "at": "2024-01-01"} for n in range(20 * (at + 1)))
        )
    tables = shop.run(tables={str(shop.home / "t1"): {"partition_by": ["bucket(2, id)"]}})
    shop.check()
    assert {receipt.table for receipt in tables.receipts} == {str(shop.home / f"t{at}") for at in range(5)}
    assert not open_table(str(shop.home / "t1")).spec.is_unpartitioned
    keys = [open_table(str(shop.home / f"t{at}")).schema.identifier_field_ids for at in range(5)]
    assert keys == [(1,)] * 5

    shop.put("t3", *({"id": n, "v3": "again", "at": None} for n in range(0, 100, 3)))
    shop.remove("t3", *range(1, 20, 2))
    shop.put("new", {"id": 1, "w": 1.5}, {"id": 2, "w": 2})
    before = {name: len(open_table(str(shop.home / name)).snapshots) for name in shop.rows if name != "new"}
    shop.run()
    shop.check()
    grown = [
        name for name, count in before.items() if len(open_table(str(shop.home / name)).snapshots) > count
    ]
    assert grown == ["t3"], "tables without records get no snapshot"


def test_what_one_table_meets_does_not_keep_the_others(shop: Shop) -> None:
    shop.put("good", {"id": 1, "v": "a"})
    shop.put("bad", {"id": 1, "v": 1})
    shop.run()
    shop.put("good", {"id": 2, "v": "b"})
    event = {"before": None, "after": {"id": 2, "v": "no number"}, "op": "c", "source": {}}
    shop.send("bad", json.dumps(event).encode())
    with pytest.raises(
        StreamlakeError, match=r"the table '.*bad' stopped the query.*1 other tables are committed"
    ):
        shop.run()
    assert shop.found("good") == shop.expected("good")
    snapshots = len(open_table(str(shop.home / "good")).snapshots)
    with pytest.raises(StreamlakeError, match="bad"):
        shop.run()
    assert len(open_table(str(shop.home / "good")).snapshots) == snapshots, "a replay writes what is missing"
    assert shop.found("bad") == shop.expected("bad")


def test_a_table_in_quarantine_loses_nothing(shop: Shop) -> None:
    schema = parse_ddl("id long not null, v string not null")
    create_table(str(shop.home / "bad"), replace(schema, identifier_field_ids=(1,)), format_version=3)
    shop.put("good", {"id": 1, "v": "a"})
    shop.put("bad", {"id": 1, "v": "a"})
    shop.run(on_table_failure="quarantine")
    shop.put("good", {"id": 2, "v": "b"})
    shop.put("bad", {"id": 2, "v": None}, {"id": 3, "v": "c"})
    tables = shop.run(on_table_failure="quarantine")
    entry = tables.quarantine[str(shop.home / "bad")]
    assert "'after.v' is required" in entry.error
    assert shop.found("good") == shop.expected("good")
    assert shop.found("bad") == [{"id": 1, "v": "a"}]
    shop.put("good", {"id": 3, "v": "c"})
    shop.put("bad", {"id": 4, "v": "d"}, {"id": 1, "v": "e"})
    again = shop.run(on_table_failure="quarantine")
    assert again.quarantine[str(shop.home / "bad")].offsets == entry.offsets, "it failed again from there on"
    assert shop.found("good") == shop.expected("good")

    UpdateSchema(open_table(str(shop.home / "bad"))).make_optional("v").commit()
    shop.put("bad", {"id": 5, "v": "f"})
    snapshots = len(open_table(str(shop.home / "bad")).snapshots)
    assert not shop.run(on_table_failure="quarantine").quarantine
    shop.check()
    assert len(open_table(str(shop.home / "bad")).snapshots) == snapshots + 1
    shop.put("bad", {"id": 6, "v": "g"})
    shop.run(on_table_failure="quarantine")
    shop.check()


def test_a_table_that_is_restored_from_a_copy_is_not_gone_on_with(shop: Shop) -> None:
    """Nothing in the table says so, and the next checkpoints have no record for it; tables that had none are not refused."""
    for name in ("idle", "other", "restored"):
        shop.put(name, {"id": 1, "v": "a"})
    shop.run()
    shutil.copytree(shop.home / "restored", shop.home / "copy")
    shop.put("restored", {"id": 2, "v": "b"})
    shop.run()
    shutil.rmtree(shop.home / "restored")
    shutil.copytree(shop.home / "copy", shop.home / "restored")
    lost = r"has written checkpoint 1 to .*restored, but the table holds nothing newer than checkpoint 0"
    with pytest.raises(LineageError, match=lost):
        shop.run()
    shop.put("other", {"id": 2, "v": "b"})
    with pytest.raises(LineageError, match=lost) as refusal:
        shop.run()
    recover(str(refusal.value), "--adopt")
    shop.put("restored", {"id": 3, "v": "c"})
    shop.put("joins", {"id": 1, "v": "a"})
    shop.run()
    shop.run()  # with nothing to do
    del shop.rows["restored"][2]
    shop.check()


def test_several_topics_may_feed_one_table(shop: Shop) -> None:
    shop.put("a", {"id": 1, "v": "x"})
    shop.put("b", {"id": 2, "v": "y"})
    tables = IcebergTables(str(shop.home / "all_{kind}"), mode="upsert", key=["id"])
    source = KafkaSource(
        shop.broker.bootstrap_servers,
        topic_pattern=rf"{shop.prefix}\.(?P<kind>public)\..+",
        format="debezium-json",
    )
    checkpoint = str(shop.home / "checkpoint")
    query = tables.start(source, checkpoint_location=checkpoint, trigger=AVAILABLE_NOW)
    assert query.awaitTermination(RUN_SECONDS)
    assert shop.found("all_public") == [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}]
