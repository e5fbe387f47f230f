"""A year of flights streamed into a table partitioned by month, through files and through a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlake import IcebergSink, KafkaSource, load_table
from streamlake.catalog.open import open_table
from tests.helpers.invariants import check_table
from tests.helpers.readers import DuckDbReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

DDL = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int, "
    "hour int, minute int, time_hour timestamp"
)
CHECKPOINTS = 24
SUMS = (
    "select carrier, count(*) as n, sum(distance) as distance, sum(air_time) as air_time, sum(dep_delay) as dep_delay, "
    "count(distinct tailnum) as planes from {} group by carrier order by carrier"
)


@pytest.fixture(scope="module")
def expected(flights: pa.Table, duckdb_reader: DuckDbReader) -> list[dict[str, Any]]:
    """Counts and sums per carrier of the source itself."""
    duckdb_reader.connection.register("source_flights", flights)
    return _sums(duckdb_reader.sql(SUMS.format("source_flights")))


def test_through_files(
    flights: pa.Table,
    expected: list[dict[str, Any]],
    iceberg_spark: SparkSession,
    tmp_path: Path,
    duckdb_reader: DuckDbReader,
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    share = flights.num_rows // CHECKPOINTS + 1
    for number in range(CHECKPOINTS):
        pq.write_table(flights.slice(number * share, share).cast(_SCHEMA), landing / f"{number:03d}.parquet")
    frame = iceberg_spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(landing))
    sink = IcebergSink(str(tmp_path / "table"), create=True, partition_by=["month(time_hour)"])
    query = sink.start(
        frame, checkpoint_location=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
    )
    query.awaitTermination()
    _check(tmp_path / "table", CHECKPOINTS, expected, iceberg_spark, duckdb_reader)


def test_through_kafka(
    flights: pa.Table,
    expected: list[dict[str, Any]],
    iceberg_spark: SparkSession,
    tmp_path: Path,
    duckdb_reader: DuckDbReader,
    kafka_broker: KafkaBroker,
) -> None:
    duckdb_reader.connection.register("source_flights", flights)
    values = duckdb_reader.sql("select to_json(f)::varchar as value from source_flights f")[
        "value"
    ].to_pylist()
    topic = kafka_broker.create_topic(partitions=4)
    kafka_broker.produce(topic, (value.encode() for value in values))
    source = KafkaSource(
        bootstrap_servers=kafka_broker.bootstrap_servers,
        topics=[topic],
        schema=DDL,
        options={"starting-offsets": "earliest", "max-offsets-per-trigger": "15000"},
    )
    sink = IcebergSink(str(tmp_path / "table"), create=True, partition_by=["month(time_hour)"])
    query = sink.start(
        source, checkpoint_location=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
    )
    query.awaitTermination()
    _check(tmp_path / "table", -(-flights.num_rows // 15_000), expected, iceberg_spark, duckdb_reader)


def _check(
    location: Path,
    checkpoints: int,
    expected: list[dict[str, Any]],
    spark: SparkSession,
    duckdb_reader: DuckDbReader,
) -> None:
    table = open_table(str(location))
    check_table(table, files_exist=True)
    ids = [snapshot.summary["streamlake.max-committed-checkpoint-id"] for snapshot in table.snapshots]
    assert ids == [str(number) for number in range(checkpoints)]
    assert checkpoints >= 20
    assert _sums(duckdb_reader.sql(SUMS.format(duckdb_reader.relation(location)))) == expected
    spark.read.format("iceberg").load(f"file://{location}").createOrReplaceTempView("flights_of_java")
    assert _sums(spark.sql(SUMS.format("flights_of_java")).toArrow()) == expected
    july = load_table(str(location)).scan(
        filter="time_hour >= '2013-07-01T00:00:00+00:00' and time_hour < '2013-08-01T00:00:00+00:00'",
        columns=["month"],
    )
    assert (
        july.to_arrow().num_rows
        == spark.sql(
            "select * from flights_of_java where time_hour >= '2013-07-01' and time_hour < '2013-08-01'"
        ).count()
    )


def _sums(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {key: value if isinstance(value, str) else int(value) for key, value in row.items()}
        for row in table.to_pylist()
    ]


_SCHEMA = pa.schema(
    [
        pa.field(
            name,
            {"int": pa.int32(), "string": pa.string(), "timestamp": pa.timestamp("us", tz="UTC")}[kind],
        )
        for name, kind in (column.split() for column in DDL.split(", "))
    ]
)
