"""Tables of 300 columns and of five levels of nesting, from a topic: added and upserted, evolved, read by other engines."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.spec.types.type_text import columns_text
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import KafkaStream
from tests.helpers.readers import DuckDbReader, PyIcebergReader, SparkReader, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

WIDTH = 300
TYPES = ("long", "double", "string", "boolean", "decimal(12,2)", "timestamptz", "int")
START = datetime(2026, 3, 1, tzinfo=timezone.utc)
DEEP = "id long not null, a struct<b: list<struct<c: map<string, struct<d: struct<e: int>>>>>>"


@pytest.fixture
def stream(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> KafkaStream:
    return KafkaStream(kafka_broker, tmp_path)


def wide_ddl() -> str:
    return ", ".join(["id long not null", *(f"c{at} {TYPES[at % len(TYPES)]}" for at in range(1, WIDTH))])


def wide_row(number: int) -> dict[str, Any]:
    """Every value tells its row and its column; every eleventh is null."""
    row: dict[str, Any] = {"id": number}
    for at in range(1, WIDTH):
        value = number * 1_000 + at
        made = (
            value, value / 8, f"{value}", value % 2 == 0, Decimal(value) / 100, START + timedelta(seconds=value), value,
        )[at % len(TYPES)]  # fmt: skip
        row[f"c{at}"] = None if value % 11 == 0 else made
    return row


def as_json(row: dict[str, Any]) -> bytes:
    return json.dumps(
        row, default=lambda value: value.isoformat() if isinstance(value, datetime) else float(value)
    ).encode()


def connect_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Debezium writes it: decimals as base64 of their digits, times in microseconds as text."""
    return {
        name: base64.b64encode(int(value * 100).to_bytes(8, "big", signed=True)).decode()
        if isinstance(value, Decimal)
        else value.isoformat()
        if isinstance(value, datetime)
        else value
        for name, value in row.items()
    }


def check_by_all(
    stream: KafkaStream,
    expected: list[dict[str, Any]],
    spark: SparkSession,
    duckdb_reader: DuckDbReader,
    pyiceberg_reader: PyIcebergReader,
) -> None:
    """Our reader finds `expected`, the others find what ours does."""
    table = open_table(stream.location)
    check_table(table, files_exist=True)
    ours = load_table(stream.location).scan().to_arrow()
    assert sorted(ours.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["id"]) == expected
    for reader in (SparkReader(spark), duckdb_reader, pyiceberg_reader):
        theirs = reader.read(Path(stream.location))
        assert theirs.column_names == ours.column_names, reader.name
        assert rows(theirs, "id", reader.loose) == rows(ours, "id", reader.loose), reader.name


def test_three_hundred_columns(
    iceberg_spark: SparkSession,
    stream: KafkaStream,
    duckdb_reader: DuckDbReader,
    pyiceberg_reader: PyIcebergReader,
) -> None:
    expected = [wide_row(number) for number in range(40)]
    lines = [as_json(row) for row in expected]
    backwards = json.dumps(dict(reversed(json.loads(lines[7]).items()))).encode()
    stream.broker.produce(stream.topic, [*lines[:7], backwards, *lines[8:]])
    stream.run(schema=wide_ddl())
    check_by_all(stream, expected, iceberg_spark, duckdb_reader, pyiceberg_reader)


def test_changes_of_three_hundred_columns(
    iceberg_spark: SparkSession,
    stream: KafkaStream,
    duckdb_reader: DuckDbReader,
    pyiceberg_reader: PyIcebergReader,
) -> None:
    """A column more and two updates in the second checkpoint, a row less, and a value that the database left out."""
    log: list[tuple[bytes, bytes | None]] = []

    def change(row: dict[str, Any], op: str) -> None:
        source = {"connector": "postgresql", "lsn": len(log) + 1, "name": "shop", "version": "3.0"}
        sent = connect_row(row)
        event = {
            "before": sent if op == "d" else None,
            "after": None if op == "d" else sent,
            "op": op,
            "source": source,
        }
        log.append((json.dumps({"id": row["id"]}).encode(), json.dumps(event).encode()))

    create_table(stream.location, wide_ddl(), format_version=2)
    expected = {number: wide_row(number) for number in range(40)}
    for row in expected.values():
        change(row, "c")
    first = len(log)
    for number in (3, 33):
        new = {**wide_row(number), "c1": -1, "c299": None, "extra": "added"}
        change({**new, "c2": "__debezium_unavailable_value"}, "u")
        expected[number] = {**new, "c2": expected[number]["c2"]}
    change(expected.pop(5), "d")
    stream.broker.produce(stream.topic, log)
    sink = stream.sink(mode="upsert", key=["id"], schema_evolution="full")
    options: dict[str, Any] = {"debezium.time_precision_mode": "isostring"}
    stream.run(sink, schema=None, format="debezium-json", max_offsets_per_trigger=first, **options)
    found = [{"extra": None, **row} for _, row in sorted(expected.items())]
    check_by_all(stream, found, iceberg_spark, duckdb_reader, pyiceberg_reader)
    assert len(open_table(stream.location).schema.fields) == WIDTH + 1


def deep_row(number: int, leaf: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, "a": {"b": [{"c": {"k": {"d": leaf}, "none": None}}, {"c": {}}]}}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_five_levels(
    iceberg_spark: SparkSession,
    stream: KafkaStream,
    duckdb_reader: DuckDbReader,
    pyiceberg_reader: PyIcebergReader,
    mode: str,
) -> None:
    """The leaf becomes wider in the second checkpoint, and gets another one beside it; ids of fields stay."""
    create_table(stream.location, DEEP, format_version=2)
    numbers = (3, 30) if mode == "upsert" else (30, 31)
    told = [deep_row(number, {"e": number}) for number in range(20)]
    told += [{"id": 20, "a": None}, {"id": 21, "a": {"b": []}}, {"id": 22, "a": {"b": [None, {"c": None}]}}]
    first = len(told)
    told += [deep_row(number, {"e": 2**40 + number, "f": f"f{number}"}) for number in numbers]
    stream.broker.produce(stream.topic, [json.dumps(row).encode() for row in told])
    upsert = {"mode": "upsert", "key": ["id"]} if mode == "upsert" else {}
    sink = stream.sink(schema_evolution="full", **upsert)
    stream.run(sink, schema=None, max_offsets_per_trigger=first)
    table = open_table(stream.location)
    assert columns_text(table.schema) == DEEP.replace("e: int", "e: long, f: string")
    kept = {row["id"]: row for row in told}
    for row in told[:20]:
        row["a"]["b"][0]["c"]["k"]["d"]["f"] = None
    found = [row for _, row in sorted(kept.items())]
    check_by_all(stream, found, iceberg_spark, duckdb_reader, pyiceberg_reader)
