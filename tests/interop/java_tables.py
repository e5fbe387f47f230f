"""Tables made by Iceberg's Java implementation, in its Hadoop catalog `ice`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.helpers.spark import ICE_CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS: Iterator[int] = itertools.count()

PRIMITIVES_DDL = (
    "id bigint not null, flag boolean, small int, big bigint, ratio float, amount double, price decimal(9,2), "
    "total decimal(18,4), huge decimal(38,10), day date, at timestamp_ntz, moment timestamp, name string, "
    "payload binary, category string"
)
NESTED_DDL = (
    "id bigint not null, person struct<age: int, name: string, home: struct<lat: double, at: timestamp>>, "
    "numbers array<int>, points array<struct<x: bigint, label: string>>, counts map<string, int>, "
    "books map<int, struct<price: decimal(10,2), tags: array<string>>>, grid array<array<string>>"
)


class JavaTable:
    """One table of the Java catalog: `name` for SQL, `location` for everybody else."""

    def __init__(self, spark: SparkSession, warehouse_parent: Path, table: str) -> None:
        self._spark = spark
        self.name = f"{ICE_CATALOG}.java.{table}"
        self.location = warehouse_parent / ICE_CATALOG / "java" / table

    def sql(self, text: str) -> list[dict[str, object]]:
        """Run SQL in which `{t}` stands for the table; the rows as dictionaries."""
        return [
            row.asDict(recursive=True) for row in self._spark.sql(text.replace("{t}", self.name)).collect()
        ]

    def insert(self, rows: pa.Table) -> None:
        """Append `rows` as Spark's DataFrameWriterV2 does."""
        frame = self._spark.createDataFrame(rows)
        frame.coalesce(1).writeTo(self.name).option("fanout-enabled", "true").append()

    def read(self) -> pa.Table:
        return self._spark.table(self.name).toArrow()


def create_java_table(
    spark: SparkSession,
    spark_home: Path,
    ddl: str = PRIMITIVES_DDL,
    partitioned_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    **more: str,
) -> JavaTable:
    """A new, empty table; `properties` and keywords (`format_version`, dashes for underscores) become table properties."""
    table = JavaTable(spark, spark_home, f"t{next(_NUMBERS)}")
    given = {**(properties or {}), **{key.replace("_", "-"): value for key, value in more.items()}}
    clauses = f" PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
    pairs = [f"'{key}'='{value}'" for key, value in given.items()]
    if pairs:
        clauses += f" TBLPROPERTIES ({', '.join(pairs)})"
    table.sql("CREATE TABLE {t} (" + ddl + ") USING iceberg" + clauses)
    return table
