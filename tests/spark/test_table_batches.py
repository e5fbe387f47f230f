"""`spark.read.format("streamlake")`: the rows of `LoadedTable.scan()`, as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamlake.pipeline.iceberg.frames.iceberg_data_source import register
from streamlake.tables import LoadedTable, create_table
from tests.unit.pipeline.iceberg.table_streams import add, tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


def frame(spark: SparkSession, table: LoadedTable, **options: Any) -> DataFrame:
    named = {key.replace("_", "-"): str(value) for key, value in options.items()}
    return spark.read.format("streamlake").options(**named).load(table.location)


def ids(found: DataFrame) -> list[int]:
    return sorted(row["id"] for row in found.collect())


def test_what_is_read(spark, table):
    assert ids(frame(spark, table)) == []
    snapshots = [add(table, number) for number in range(4)]
    tag(table, "second", snapshots[1])
    whole = frame(spark, table)
    assert whole.dtypes == [("id", "bigint"), ("category", "string")]
    assert ids(whole) == [0, 1, 2, 3]
    assert ids(frame(spark, table, tag="second")) == [0, 1]
    assert ids(frame(spark, table, snapshot_id=snapshots[0])) == [0]
    assert ids(frame(spark, table, start_tag="second")) == [2, 3]
    assert frame(spark, table, columns="id", filter="id > 1").columns == ["id"]
    assert ids(frame(spark, table, columns="id", filter="id > 1")) == [2, 3]
    assert frame(spark, table, limit=2).count() == 2
    assert frame(spark, table, limit=0).count() == 0
    add(table, 9)
    assert ids(whole) == [0, 1, 2, 3], "rows of the moment at which it was loaded"
