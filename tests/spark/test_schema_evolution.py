"""Tables that follow the schema of their stream, under real queries that die between evolving and committing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamlake import IcebergSink, create_table, failpoints, load_table
from streamlake.catalog.open import open_table
from streamlake.errors import SchemaMismatchError
from streamlake.spec.types.type_text import columns_text
from tests.helpers.file_times import set_turn
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.kafka_stream import KafkaStream

if TYPE_CHECKING:
    from tests.helpers.broker import KafkaBroker


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


class Stream:
    """Rows in JSON files, one file a checkpoint, read with whatever schema a query has."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        self.folder = home / "landing"
        self.folder.mkdir()
        self.checkpoint = str(home / "checkpoint")
        self.location = str(home / "table")
        self.files = 0

    def land(self, *rows: dict[str, Any]) -> None:
        path = self.folder / f"{self.files:04d}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        set_turn(path, self.files)
        self.files += 1

    def frame(self, ddl: str) -> DataFrame:
        return self.spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).json(str(self.folder))

    def run(self, ddl: str, **options: Any) -> IcebergSink:
        sink = IcebergSink(self.location, **options)
        query = sink.start(
            self.frame(ddl), checkpoint_location=self.checkpoint, trigger={"availableNow": True}
        )
        query.awaitTermination()
        return sink

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = load_table(self.location).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["id"] is None, row["id"]))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def test_a_table_follows_its_stream_through_deaths(stream: Stream) -> None:
    ddl = "id int not null, v float, s struct<a: int>, gone string not null, name string not null"
    create_table(stream.location, ddl, partition_by=["bucket(2, id)"])
    stream.land({"id": 1, "v": 0.5, "s": {"a": 1}, "gone": "g", "name": "n"})
    stream.run("id int, v float, s struct<a: int>, gone string, name string", schema_evolution="full")
    before = open_table(stream.location)
    assert before.schema.schema_id == 0, "a DataFrame says of nearly every column that it may be null"

    wider = "id bigint, v double, s struct<a: bigint, b: string>, name string, tags array<string>"
    stream.land({"id": 2**40, "v": 1e300, "s": {"a": 2**41, "b": "x"}, "name": "n", "tags": ["t"]})
    stream.land({"id": 3, "v": 1.5, "s": None, "name": None, "tags": []})
    with pytest.raises(SchemaMismatchError, match=r"'v' is float and cannot become double.*other schema"):
        stream.run(wider, schema_evolution="add")
    failpoints.arm("results-collected=raise,nth=1")
    with pytest.raises(StreamingQueryException):
        stream.run(wider, schema_evolution="full")
    evolved = open_table(stream.location)
    assert (len(evolved.schemas), len(evolved.snapshots)) == (2, 1), "evolved, and nothing is committed"
    failpoints.arm("")
    stream.run(wider, schema_evolution="full")
    table = open_table(stream.location)
    assert columns_text(table.schema).startswith("id long not null, v double, s struct<")
    assert columns_text(table.schema).endswith("gone string, name string, tags list<string>")
    assert len(table.schemas) == 3, "the second is for a null that only a task has met"
    assert table.metadata.last_column_id == before.metadata.last_column_id + 3
    old = {"id": 1, "v": 0.5, "s": {"a": 1, "b": None}, "gone": "g", "name": "n", "tags": None}
    none = {"id": 3, "v": 1.5, "s": None, "gone": None, "name": None, "tags": []}
    new = {"id": 2**40, "v": 1e300, "s": {"a": 2**41, "b": "x"}, "gone": None, "name": "n", "tags": ["t"]}
    assert stream.rows() == [old, none, new]
    check_table(table, files_exist=True)


def test_an_upsert_goes_on_when_its_key_gets_wider(stream: Stream) -> None:
    options: dict[str, Any] = {"mode": "upsert", "key": ["id"], "row_kind": "op", "sequence_by": ["n"]}
    stream.land(*({"op": "c", "id": at, "n": 1, "v": "old"} for at in range(20)))
    stream.run("op string, id int, n int, v string", create=True, **options)
    stream.land({"op": "u", "id": 3, "n": 2, "v": "new", "more": 7}, {"op": "d", "id": 4, "n": 2})
    stream.land({"op": "u", "id": 2**40, "n": 2**40, "v": "new", "more": None}, {"op": "u", "id": 5, "n": 0})
    wider = "op string, id bigint, n bigint, text string, more int"
    failpoints.arm("committable-recorded=raise,nth=1")
    changed = {**options, "schema_evolution": "full", "rename_columns": {"v": "text"}}
    with pytest.raises(StreamingQueryException):
        stream.run(wider, **changed)
    failpoints.arm("")
    stream.run(wider, **changed)
    table = open_table(stream.location)
    assert columns_text(table.schema) == "id long not null, n long, text string, more int"
    assert [part.field_id for part in table.schema.fields] == [1, 2, 3, 4]
    rows = {row["id"]: (row["n"], row["text"], row["more"]) for row in stream.rows()}
    assert rows == {
        **{at: (1, "old", None) for at in range(20) if at != 4},
        3: (2, None, 7),
        2**40: (2**40, None, None),
    }
    assert len(stream.rows()) == len(rows)
    check_table(table, files_exist=True)


def test_what_cannot_be_stops_before_anything_is_written(stream: Stream) -> None:
    create_table(stream.location, "id long not null, v string")
    stream.land({"id": 1, "v": 2})
    with pytest.raises(SchemaMismatchError) as error:
        stream.run("id bigint, v int, extra string", schema_evolution="full")
    assert "the other schema has id long, v int, extra string" in str(error.value)
    assert open_table(stream.location).metadata.current_schema_id == 0
    assert not list(Path(stream.location).glob("data/**/*.parquet"))


def test_a_database_that_is_altered_while_its_changes_stream(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    stream = KafkaStream(kafka_broker, tmp_path)
    create_table(stream.location, "id bigint not null, name string not null, n int")
    rows: dict[int, dict[str, Any]] = {}
    records: list[tuple[bytes, bytes]] = []

    def change(id: int, row: dict[str, Any] | None) -> None:
        before = None if row else {"id": id, "name": "", "n": None}
        source = {"connector": "postgresql", "lsn": len(records), "name": "shop", "version": "3.0"}
        event = {"before": before, "after": row, "op": "u" if row else "d", "source": source}
        records.append((json.dumps({"id": id}).encode(), json.dumps(event).encode()))
        rows.pop(id, None)
        if row:
            rows[id] = row

    for at in range(75):
        change(at, {"id": at, "name": f"n{at}", "n": at})
    for at in range(60, 85):
        change(at, {"id": at, "name": f"n{at}", "n": at, "version": 2**40, "note": None})
    change(3, None)
    for at in range(10, 59):
        change(at, {"id": at, "name": None, "note": "text", "version": at})
    kafka_broker.produce(stream.topic, records)

    def run() -> IcebergSink:
        sink = stream.sink(mode="upsert", key=["id"], schema_evolution="full", format_version=3)
        return stream.run(sink, schema=None, format="debezium-json", max_offsets_per_trigger=50)

    failpoints.arm("results-collected=raise,nth=2")
    with pytest.raises(StreamingQueryException):
        run()
    failpoints.arm("")
    died = open_table(stream.location)
    assert (len(died.snapshots), died.schema.column_names) == (1, ["id", "name", "n", "version"])
    run()
    table = open_table(stream.location)
    assert columns_text(table.schema) == "id long not null, name string, n int, version long, note string"
    assert [part.field_id for part in table.schema.fields] == [1, 2, 3, 4, 5]
    assert len(table.snapshots) == 3
    found = load_table(stream.location).scan().to_arrow().to_pylist()
    names = table.schema.column_names
    expected = [{name: row.get(name) for name in names} for _, row in sorted(rows.items())]
    assert sorted(found, key=lambda row: row["id"]) == expected
    data = Path(stream.location, "data")
    live = {file.file_path for file in live_data_files(table)}
    assert {str(path) for path in data.rglob("*.parquet")} >= live
    check_table(table, files_exist=True)


def test_rows_that_are_only_added_bring_columns_too(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    stream = KafkaStream(kafka_broker, tmp_path)
    create_table(stream.location, "id int, name string not null")
    records = [{"id": 1, "name": "n"}, {"id": 2**40, "name": "n", "extra": {"a": [1.5]}}]
    kafka_broker.produce(stream.topic, [json.dumps(record).encode() for record in records])
    stream.run(stream.sink(schema_evolution="full"), schema=None)
    table = open_table(stream.location)
    assert columns_text(table.schema) == "id long, name string not null, extra struct<a: list<double>>"
    found = load_table(stream.location).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{**records[0], "extra": None}, records[1]]
