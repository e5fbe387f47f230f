"""`spark.readStream.format("streamlake")`: a table as a stream of rows, in between what SQL does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from streamlake import IcebergSink, load_table
from streamlake.errors import FeatureUnsupportedError
from streamlake.pipeline.iceberg.frames.iceberg_data_source import register
from streamlake.pipeline.spark.admission_control import HAS_ADMISSION_CONTROL
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.tables import LoadedTable, create_table
from tests.unit.pipeline.iceberg.table_streams import add, compact, overwrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_SECONDS = 240
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


def frame(spark: SparkSession, table: LoadedTable, **options: Any) -> DataFrame:
    named = {key.replace("_", "-"): str(value) for key, value in options.items()}
    reader = spark.readStream.format("streamlake").option("monitor-interval", "0 ms")
    return reader.options(**named).load(table.location)


def copied(found: DataFrame, home: Path) -> list[int]:
    """Everything that is there now into another table; returns its ids."""
    sink = IcebergSink(str(home / "copy"), create=True)
    query = sink.start(
        found, checkpoint_location=str(home / "checkpoint"), trigger={"processingTime": "0 seconds"}
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return sorted(load_table(home / "copy").scan(columns=["id"]).to_arrow()["id"].to_pylist())


def offsets(home: Path) -> list[dict[str, Any]]:
    """The source's offsets in the checkpoint, oldest first."""
    logs = sorted((home / "checkpoint/offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2]) for path in logs]


@pytest.mark.timeout(900)
def test_a_table_is_copied_exactly_once_over_restarts(spark, table, tmp_path):
    for number in range(3):
        add(table, number)
    assert copied(frame(spark, table).where("id >= 0"), tmp_path) == [0, 1, 2]
    assert copied(frame(spark, table), tmp_path) == [0, 1, 2]
    [first] = offsets(tmp_path)
    assert first["start"]["scan"] is True
    add(table, 3)
    compact(table)
    add(table, 4)
    assert copied(frame(spark, table), tmp_path) == [0, 1, 2, 3, 4]
    # A crash after the table was committed, and before Spark knew it; then one before anything was committed.
    last = len(offsets(tmp_path)) - 1
    for name in (f"commits/{last}", f"commits/.{last}.crc"):
        Path(tmp_path, "checkpoint", name).unlink()
    add(table, 5)
    assert copied(frame(spark, table), tmp_path) == [0, 1, 2, 3, 4, 5]
    UpdateSchema(table.table).add_column("more", "string").commit()
    overwrite(table, "category = 'a'", 8)
    with pytest.raises(StreamingQueryException, match="on-delete"):
        copied(frame(spark, table), tmp_path)
    add(table, 9)
    assert copied(frame(spark, table, on_delete="skip", columns="id,category"), tmp_path) == [
        0,
        1,
        2,
        3,
        4,
        5,
        9,
    ]


@pytest.mark.skipif(HAS_ADMISSION_CONTROL, reason="Spark 4.2 and later keep availableNow")
def test_available_now_is_refused_where_spark_would_end_it_early(spark, table, tmp_path):
    add(table, 0)
    sink = IcebergSink(str(tmp_path / "copy"), create=True)
    with pytest.raises(FeatureUnsupportedError, match=r"availableNow needs Spark 4\.2.*IcebergSource"):
        sink.start(
            frame(spark, table).where("id > 0").selectExpr("id + 1 as id"),
            checkpoint_location=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
    with pytest.raises(StreamingQueryException, match=r"max-files-per-trigger needs Spark 4\.2"):
        copied(frame(spark, table, max_files_per_trigger=1), tmp_path)


def test_filters_are_pushed_where_spark_does(spark, table):
    add(table, *range(10))
    reader = spark.read.format("streamlake").option("split-size", "1").option("split-file-open-cost", "1")
    assert reader.load(table.location).where("id > 3 and category = 'a'").count() == 3
    spark.conf.set(PUSHDOWN, "true")
    try:
        some = reader.load(table.location).where("id > 3 and category = 'a' and id % 4 = 0")
        assert some.rdd.getNumPartitions() == 1, "one of two files"
        assert sorted(row["id"] for row in some.collect()) == [4, 8]
        plan = some._jdf.queryExecution().executedPlan().toString()
        assert "category" not in plan.partition("Filter")[2].partition("\n")[0]
    finally:
        spark.conf.unset(PUSHDOWN)


def test_what_a_batch_reads(spark, table):
    assert spark.read.format("streamlake").load(table.location).count() == 0
    add(table, 0, 1)
    whole = spark.read.format("streamlake").load(table.location)
    add(table, 2)
    assert sorted(row["id"] for row in whole.collect()) == [0, 1], "rows of the moment at which it was loaded"
    assert spark.read.format("streamlake").option("limit", 1).load(table.location).count() == 1
