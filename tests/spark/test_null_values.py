"""Records without a value on a plain topic, from the broker to the table: counted, or deletes by the message key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake import IcebergSink, load_table, verify
from streamlake.cli.commands.run import receipt_line
from streamlake.operate.status.status import status_of_table
from tests.helpers.kafka_stream import KafkaStream, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker


@pytest.fixture
def stream(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> KafkaStream:
    stream = KafkaStream(kafka_broker, tmp_path)
    kafka_broker.produce(stream.topic, [(str(key).encode(), value(key)) for key in range(10)], partition=0)
    return stream


def test_they_are_counted_and_shown(stream: KafkaStream) -> None:
    stream.broker.produce(stream.topic, [(b"3", None), (b"4", None)], partition=0)
    receipt = stream.run(stream.sink(pipeline="p")).receipts[-1]
    assert (receipt.rows, receipt.counters["tombstones"]) == (10, 2)
    assert "committed, 10 rows (2 tombstones), " in receipt_line(receipt)
    assert load_table(stream.location).snapshots[-1].summary["streamlake.tombstones"] == "2"
    with status_of_table(stream.location, bootstrap_servers=stream.broker.bootstrap_servers) as reader:
        [table] = reader.read().tables
    assert table.tombstones == 2


def test_deletes_by_the_message_key(stream: KafkaStream) -> None:
    def sink() -> IcebergSink:
        return stream.sink(mode="upsert", key=["id"], pipeline="p", on_error="reject")

    stream.run(sink(), null_value="delete")
    assert stream.ids() == list(range(10))
    stream.broker.produce(
        stream.topic, [(b"3", None), (b"3", value(3)), (b"4", None), (b"x", None)], partition=0
    )
    receipt = stream.run(sink(), null_value="delete").receipts[-1]
    assert stream.ids() == [0, 1, 2, 3, *range(5, 10)]
    assert (receipt.counters["rejected-records"], receipt.counters.get("tombstones", 0)) == (1, 0)
    found = verify(stream.location, stream.source(null_value="delete"), mode="upsert", key=["id"])
    assert (found.is_equal, found.rejected, found.unreadable) == (True, 1, 0)
    assert found.source_rows == 9
