"""One query writes the rows of a topic into the tables that they name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamlake import IcebergTables, KafkaSource, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.commit.committer import Committer
from streamlake.errors import LineageError, StorageError, StreamlakeError, TableNotFoundError
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.schema.update_schema import UpdateSchema
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import AVAILABLE_NOW, CONTINUOUSLY, RUN_SECONDS
from tests.helpers.local_rejects import rejected_rows_of
from tests.helpers.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

DDL = "id long not null, country string, at struct<city: string>, v string"
Row = dict[str, Any]


class Events:
    """A topic of events from several countries, and the tables that they go into."""

    def __init__(self, broker: KafkaBroker, home: Path) -> None:
        self.broker = broker
        self.home = home
        self.topic = broker.create_topic(partitions=2)
        self.sent: dict[str, list[Row]] = {}

    def send(self, *rows: Row, partition: int = 0) -> None:
        for row in rows:
            self.sent.setdefault(str(row.get("country")).lower(), []).append(row)
        self.raw([json.dumps(row).encode() for row in rows], partition)

    def raw(self, values: Iterable[bytes], partition: int = 0) -> None:
        self.broker.produce(self.topic, list(values), partition=partition)

    def name(self, part: str) -> str:
        return str(self.home / f"events_{part}")

    def run(self, table: str = "events_{row.country}", **options: Any) -> IcebergTables:
        source = {"schema": DDL, "format": "json", **options.pop("source", {})}
        tables = IcebergTables(str(self.home / table), **options)
        query = tables.start(
            KafkaSource(self.broker.bootstrap_servers, self.topic, **source),
            checkpoint_location=str(self.home / "checkpoint"),
            trigger=AVAILABLE_NOW,
        )
        try:
            assert query.awaitTermination(RUN_SECONDS)
        finally:
            query.stop()
        return tables

    def ids(self, part: str) -> list[int]:
        found = load_table(self.name(part)).scan().to_arrow()["id"].to_pylist()
        check_table(open_table(self.name(part)), files_exist=True)
        return sorted(found)

    def expected(self, part: str) -> list[int]:
        return sorted(row["id"] for row in self.sent[part])

    def snapshots(self, part: str) -> int:
        return len(open_table(self.name(part)).snapshots)

    def check(self, *parts: str) -> None:
        for part in parts:
            assert self.ids(part) == self.expected(part), part


@pytest.fixture
def events(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> Events:
    return Events(kafka_broker, tmp_path)


def rows(country: Any, ids: Sequence[int], **more: Any) -> list[Row]:
    return [{"id": at, "country": country, "v": f"v{at}", **more} for at in ids]


def test_rows_go_into_the_table_that_their_field_names(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    events.send(*rows("DE", range(50)), *rows("FR", range(50, 70)))
    events.send(*rows("fr", range(70, 90)), partition=1)
    own = {events.name("fr"): {"partition_by": ["bucket(2, id)"]}}
    tables = events.run(tables=own)
    events.check("de", "fr")
    assert {receipt.table for receipt in tables.receipts} == {events.name("de"), events.name("fr")}
    assert not open_table(events.name("fr")).spec.is_unpartitioned

    # A driver that dies between the commits of its tables, before any of a new one.
    events.send(*rows("DE", range(200, 210)), *rows("FR", range(210, 230)), *rows("ES", range(230, 240)))
    commit = Committer.commit

    def dies(self: Committer, *arguments: Any, **more: Any) -> Any:
        if self._table.location.endswith(("events_fr", "events_es")):
            raise StorageError("the driver is gone")
        return commit(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", dies)
        with pytest.raises(StreamlakeError, match="the driver is gone"):
            events.run(tables=own)
    assert (events.snapshots("de"), events.snapshots("fr"), events.snapshots("es")) == (2, 1, 0)
    events.send(*rows("DE", range(300, 310)), *rows("IT", range(310, 320)))
    # The driver may also have died when it was about to put the list of tables in place.
    named = events.home / "checkpoint" / TABLES_PATH
    named.rename(named.with_name(f"{named.name}.next"))
    events.run(tables=own)
    assert set(tables_from_text(named.read_text(), str(named))) == {
        events.name(part) for part in ("de", "fr", "es", "it")
    }
    events.check("de", "fr", "es", "it")
    assert [events.snapshots(part) for part in ("de", "fr", "es", "it")] == [3, 2, 1, 1]


def by_hand(batch: pa.RecordBatch) -> pa.Array:
    """The table of each row: its city's, where it has one, of big ones only."""
    city = pc.struct_field(batch.column("at"), "city")
    return pc.if_else(pc.greater_equal(batch.column("id"), 10), pc.utf8_lower(city), None)


def test_a_table_that_is_restored_from_a_copy_is_noticed_where_there_is_nothing_to_do(events: Events) -> None:
    """Only the directory knows the names of the tables."""
    events.send(*rows("DE", range(3)), *rows("FR", range(3, 6)))
    events.run()
    shutil.copytree(events.name("fr"), events.home / "copy")
    events.send(*rows("FR", range(6, 9)))
    events.run()
    shutil.rmtree(events.name("fr"))
    shutil.copytree(events.home / "copy", events.name("fr"))
    with pytest.raises(LineageError, match=r"has written checkpoint 1 to .*events_fr"):
        events.run()


def test_changes_and_damaged_records_of_a_running_query(events: Events) -> None:
    tables = IcebergTables(
        str(events.home / "events_{route}"), mode="upsert", key=["id"], route=by_hand, on_error="reject"
    )
    query = tables.start(
        KafkaSource(events.broker.bootstrap_servers, events.topic, schema=DDL),
        checkpoint_location=str(events.home / "checkpoint"),
        trigger=CONTINUOUSLY,
    )

    def arrived(part: str, expected: Row) -> None:
        def is_there() -> bool:
            assert query.isActive, tables.error
            try:
                found = load_table(events.name(part)).scan().to_arrow().to_pylist()
            except TableNotFoundError:
                return False
            return {row["id"]: row["v"] for row in found} == expected

        wait_until(is_there, 30, part)

    def send(*sent: Row, partition: int = 0) -> None:
        events.raw([json.dumps(row).encode() for row in sent], partition)

    try:
        send(*({"id": at, "at": {"city": "Bonn"}, "v": "1"} for at in range(10, 20)))
        arrived("bonn", dict.fromkeys(range(10, 20), "1"))
        send(*({"id": at, "at": {"city": "Bonn"}, "v": "2"} for at in range(15, 25)))
        send({"id": 30, "at": {"city": "Köln"}, "v": "1"}, {"id": 3}, partition=1)
        events.raw([b"{damaged"], 1)
        arrived("bonn", {**dict.fromkeys(range(10, 20), "1"), **dict.fromkeys(range(15, 25), "2")})
        arrived("köln", {30: "1"})
        wait_until(lambda: len(rejected_rows_of(events.home / "events_unrouted")) == 2, 30, "rejects")
    finally:
        query.stop()
    reasons = [row["error_message"] for row in rejected_rows_of(events.home / "events_unrouted")]
    assert "the route function by_hand gives no table" in reasons[0]
    assert set(tables.sinks) == {events.name(part) for part in ("bonn", "köln", "unrouted")}
    check_table(open_table(events.name("bonn")), files_exist=True)


def test_a_table_in_quarantine_beside_others_of_its_topic(events: Events) -> None:
    create_table(events.name("fr"), parse_ddl("id long, country string, v string not null"))
    options: dict[str, Any] = {
        "on_table_failure": "quarantine",
        "source": {"schema": "id long, country string, v string"},
    }
    events.send(*rows("DE", range(5)), *rows("FR", range(5, 8)), {"id": 8, "country": "FR", "v": None})
    tables = events.run(**options)
    assert list(tables.quarantine) == [events.name("fr")]
    assert events.ids("de") == events.expected("de")
    UpdateSchema(open_table(events.name("fr"))).make_optional("v").commit()
    events.send(*rows("DE", range(10, 15)), *rows("FR", range(15, 18)))
    assert not events.run(**options).quarantine
    events.check("de", "fr")
