"""The format "streamlake" beside Iceberg's own in one Spark session: the same rows, columns and metadata tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake.pipeline.iceberg.frames.iceberg_data_source import register
from streamlake.read.metadata.metadata_table_rows import METADATA_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module", autouse=True)
def _registered(iceberg_spark: SparkSession) -> None:
    register(iceberg_spark)


@pytest.fixture(scope="module", params=[1, 2, 3])
def java_table(request: pytest.FixtureRequest, iceberg_spark: SparkSession, spark_home: Path) -> Path:
    """A table of Iceberg's Spark: two specs, rewritten files, position deletes or deletion vectors, and so on."""
    version = request.param
    name = f"ice.frames_v{version}"
    deletes = "copy-on-write" if version == 1 else "merge-on-read"
    sql = iceberg_spark.sql
    sql(f"drop table if exists {name}")
    sql(
        f"create table {name} (id bigint, category string, at timestamp, price decimal(9, 2)) using iceberg "
        f"partitioned by (category) tblproperties ('format-version'='{version}', "
        f"'write.delete.mode'='{deletes}', 'write.distribution-mode'='none')"
    )
    sql(
        f"insert into {name} select id, if(id % 2 = 0, 'a', 'b'), timestamp_seconds(id), id / 10 from range(0, 40)"
    )
    sql(f"delete from {name} where id in (3, 4)")
    sql(f"alter table {name} rename column price to amount")
    sql(f"alter table {name} add column more string")
    sql(f"alter table {name} add partition field bucket(4, id)")
    sql(
        f"insert into {name} values (100, 'c', timestamp'2026-01-01 00:00:00', 1.5, 'x'), (101, null, null, null, null)"
    )
    sql(f"alter table {name} create branch dev")
    sql(f"delete from {name} where id = 5")
    return spark_home / f"ice/frames_v{version}"


def ours(spark: SparkSession, location: Path, **options: Any) -> DataFrame:
    named = {key.replace("_", "-"): str(value) for key, value in options.items()}
    return spark.read.format("streamlake").options(**named).load(str(location))


def rows(found: DataFrame) -> list[str]:
    """The rows as texts; Java's paths have a scheme where the table's own has none."""
    return sorted(str(row.asDict(recursive=True)).replace("'file:/", "'/") for row in found.collect())


@pytest.mark.timeout(900)
def test_rows_and_types(iceberg_spark: SparkSession, java_table: Path) -> None:
    theirs = iceberg_spark.read.format("iceberg").load(f"file://{java_table}")
    found = ours(iceberg_spark, java_table)
    assert found.dtypes == theirs.dtypes
    assert rows(found) == rows(theirs)
    assert found.count() == 39
    branch = iceberg_spark.read.format("iceberg").option("branch", "dev").load(f"file://{java_table}")
    assert rows(ours(iceberg_spark, java_table, branch="dev")) == rows(branch)
    tasks = ours(iceberg_spark, java_table, split_size=1, split_file_open_cost=1)
    assert tasks.rdd.getNumPartitions() > 3
    assert tasks.where("id > 20 and category = 'a'").count() == 9


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", METADATA_TABLES)
def test_metadata_tables(iceberg_spark: SparkSession, java_table: Path, name: str) -> None:
    theirs = iceberg_spark.read.format("iceberg").load(f"file://{java_table}#{name}")
    found = ours(iceberg_spark, java_table, metadata_table=name)
    assert found.dtypes == theirs.dtypes
    assert rows(found) == rows(theirs)
