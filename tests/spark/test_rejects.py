"""Records that cannot become rows, on a real broker: to the rejects table, once, or the stream stops as it was told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import IcebergSink, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.errors import DecodeError, InvalidOptionError, TableNotFoundError, TooManyRejectsError
from streamlake.pipeline.rejects_table import rejects_name
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import KafkaStream, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker


@pytest.fixture
def stream(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> KafkaStream:
    return KafkaStream(kafka_broker, tmp_path, partitions=2)


def rejects(stream: KafkaStream) -> list[dict[str, Any]]:
    try:
        table = load_table(rejects_name(stream.location))
    except TableNotFoundError:
        return []
    check_table(open_table(rejects_name(stream.location)), files_exist=True)
    return table.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()


def test_bad_records_go_to_the_rejects_and_good_ones_to_the_table(stream: KafkaStream):
    stream.produce(range(100))
    sink = stream.sink(on_error="reject", pipeline="numbers")
    assert stream.run(sink).receipts[-1].counters["rejected-records"] == 0
    assert rejects(stream) == []

    stream.broker.produce(
        stream.topic, [b"{", value(100), b'{"id": "x"}'], partition=0, headers=[("h", b"1")]
    )
    stream.broker.produce(stream.topic, [value(101), b"\xff"], partition=1)
    sink = stream.sink(on_error="reject", pipeline="numbers")
    receipt = stream.run(sink).receipts[-1]
    assert (receipt.rows, receipt.counters["rejected-records"]) == (2, 3)
    assert stream.ids() == list(range(102))
    found = rejects(stream)
    assert [(row["partition"], row["offset"], row["value"]) for row in found] == [
        (0, 100, b"{"),
        (0, 102, b'{"id": "x"}'),
        (1, 1, b"\xff"),
    ]
    assert found[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert {(row["topic"], row["pipeline"], row["checkpoint_id"]) for row in found} == {
        (stream.topic, "numbers", 1)
    }
    assert "a whole number is needed" in found[1]["error_message"]
    snapshots = load_table(stream.location).snapshots
    assert snapshots[-1].summary["streamlake.rejected-records"] == "3"
    assert "streamlake.rejected-records" not in snapshots[0].summary

    # A checkpoint that has nothing but rejects is committed as well: its marker tells of them.
    stream.broker.produce(stream.topic, [b"["], partition=1)
    receipt = stream.run(stream.sink(on_error="reject", pipeline="numbers")).receipts[-1]
    assert (receipt.rows, receipt.counters["rejected-records"]) == (0, 1)
    assert len(rejects(stream)) == 4
    assert len(load_table(rejects_name(stream.location)).snapshots) == 2


def test_changes_that_do_not_fit_their_table_are_rejects(stream: KafkaStream):
    create_table(
        stream.location, "id long not null, v decimal(4,2) not null", format_version=3, properties={}
    )
    changes = [
        {"op": "c", "id": 1, "v": "1.25"},
        {"op": "c", "id": 2, "v": "100.00"},
        {"op": "c", "id": 3, "v": None},
        {"op": "zap", "id": 4, "v": "1.00"},
        {"op": "u", "id": 1, "v": "2.50"},
        {"op": "c", "id": 5, "v": "5.00"},
        {"op": "d", "id": 5},
        {"op": "c", "id": None, "v": "1.00"},
    ]
    stream.broker.produce(stream.topic, [json.dumps(change).encode() for change in changes], partition=0)
    sink = IcebergSink(
        stream.location, mode="upsert", key=["id"], row_kind="op", on_error="reject", pipeline="changes"
    )
    schema = "op string, id long, v decimal(10,2)"
    receipt = stream.run(sink, schema=schema).receipts[-1]
    assert receipt.counters["rejected-records"] == 4
    rows = load_table(stream.location).scan().to_arrow().to_pylist()
    assert [(row["id"], str(row["v"])) for row in rows] == [(1, "2.50")]
    found = rejects(stream)
    assert [row["offset"] for row in found] == [1, 2, 3, 7]
    assert {row["error_class"] for row in found} == {"SchemaMismatchError"}


def test_more_rejects_than_allowed_stop_the_stream_and_commit_nothing(stream: KafkaStream):
    for partition in (0, 1):
        stream.broker.produce(stream.topic, [value(partition), b"{", b"["], partition=partition)
    with pytest.raises(
        TooManyRejectsError, match=r"4 records of this checkpoint.*max_rejects allows 3.*offset 1"
    ):
        stream.run(stream.sink(on_error="reject", max_rejects=3))
    assert (stream.ids(), rejects(stream)) == ([], [])
    data = Path(rejects_name(stream.location), "data")
    assert not list(data.rglob("*.parquet"))
    stream.run(stream.sink(on_error="reject", max_rejects=4))
    assert (stream.ids(), len(rejects(stream))) == ([0, 1], 4)


def test_policies(stream: KafkaStream, spark: SparkSession):
    stream.broker.produce(stream.topic, [value(0), b"{"], partition=0)
    with pytest.raises(DecodeError, match="offset 1"):
        stream.run(stream.sink())
    assert rejects(stream) == []
    with pytest.raises(InvalidOptionError, match="KafkaSource"):
        stream.sink(on_error="reject").start(
            spark.readStream.format("rate").load(), checkpoint_location=stream.checkpoint
        )
    with pytest.raises(InvalidOptionError, match="reject"):
        stream.sink(on_error="rejct")
    with pytest.raises(InvalidOptionError, match="max_rejects"):
        stream.sink(max_rejects=3)
    with pytest.raises(InvalidOptionError, match="at least 1"):
        stream.sink(on_error="reject", max_rejects=0)
