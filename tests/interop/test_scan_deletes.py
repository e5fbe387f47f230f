"""Scans over every kind of delete: random histories and Java's own equality deletes, read by us and by Iceberg's Java."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from streamlake import load_table
from tests.helpers.delete_history import NUMBER, VALUES, History
from tests.helpers.readers import rows
from tests.interop.java_tables import JavaTable, create_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Java tells -0.0 from 0.0 in equality deletes.
JAVA_VALUES = {
    name: [value for value in values if not (value == 0 and math.copysign(1, value) < 0)]
    if name in ("float", "double")
    else values
    for name, values in VALUES.items()
}


def numbers_of(frame: Any) -> list[int]:
    return sorted(row[0] for row in frame.collect())


def test_java_reads_what_the_model_says(
    iceberg_spark: SparkSession, interop_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    count = iter(range(1_000))

    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.data(),
        st.sampled_from([2, 3]),
        st.lists(st.sampled_from(sorted(JAVA_VALUES)), min_size=1, max_size=3),
    )
    def check(data: Any, version: int, types: list[str]) -> None:
        location = interop_home / f"history{next(count)}"
        # Java's library takes parts of structs in equality deletes for null.
        history = History(str(location), data.draw, version, types, JAVA_VALUES, nested_keys=False)
        for _ in range(4):
            history.checkpoint()
        note(repr(history.model))
        live = sorted(row[NUMBER] for row in history.model.live())
        assert sorted(history.table.scan().to_arrow()["n"].to_pylist()) == live
        frame = iceberg_spark.read.format("iceberg").load(f"file://{location}")
        assert numbers_of(frame.select("n")) == live

    check()


class JavaDeletes:
    """Equality deletes written and committed by Iceberg's Java library."""

    def __init__(self, spark: SparkSession, table: JavaTable, file_format: str) -> None:
        self._spark, self._table, self._format = spark, table, file_format
        self._jvm = spark._jvm
        self._count = 0

    def commit(self, rows: list[dict[str, Any]], category: str | None = None) -> None:
        """Delete by the columns that `rows` have; of a partitioned table, in one category."""
        jvm = self._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self._spark._jsparkSession, self._table.name
        )
        names = list(rows[0])
        schema = table.schema().select(_java_list(jvm, names))
        ids = self._spark.sparkContext._gateway.new_array(jvm.int, len(names))
        for at, name in enumerate(names):
            ids[at] = schema.findField(name).fieldId()
        builder = getattr(jvm.org.apache.iceberg.data, "GenericFileWriterFactory$Builder")(table)
        java_format = getattr(jvm.org.apache.iceberg.FileFormat, self._format.upper())
        factory = (
            builder.deleteFileFormat(java_format)
            .equalityFieldIds(ids)
            .equalityDeleteRowSchema(schema)
            .build()
        )
        partition = None
        if table.spec().isPartitioned():
            partition = jvm.org.apache.iceberg.data.GenericRecord.create(table.spec().partitionType())
            partition.set(0, category)
        self._count += 1
        path = f"{table.location()}/data/java-deletes-{self._count}.{self._format}"
        output = jvm.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(
            table.io().newOutputFile(path)
        )
        writer = factory.newEqualityDeleteWriter(output, table.spec(), partition)
        for row in rows:
            record = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
            for name, value in row.items():
                record.setField(name, value)
            writer.write(record)
        writer.close()
        table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def _java_list(jvm: Any, values: list[str]) -> Any:
    found = jvm.java.util.ArrayList()
    for value in values:
        found.add(value)
    return found


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_equality_deletes_of_java(
    file_format: str, partitioned: bool, iceberg_spark: SparkSession, spark_home: Path
) -> None:
    """By several sets of columns, with nulls and NaN, across renamed and widened columns."""
    table = create_java_table(
        iceberg_spark,
        spark_home,
        "n int, id int, name string, amount float, ratio double, category string",
        ("category",) if partitioned else (),
        properties={"write.format.default": file_format},
        format_version="2",
    )
    deletes = JavaDeletes(iceberg_spark, table, file_format)
    insert = (
        "INSERT INTO {t} SELECT id, cast(id % 7 as int), if(id % 5 = 0, null, concat('name', id % 5)), "
        "cast(if(id % 11 = 0, null, id % 3) as float), "
        "if(id % 6 = 0, double('NaN'), if(id % 6 = 1, null, id % 6)), if(id % 2 = 0, 'even', 'odd') "
        "FROM (SELECT cast(id as int) AS id FROM range(%d, %d))"
    )
    table.sql(insert.replace("%d, %d", "0, 60"))
    deletes.commit([{"name": None}, {"name": "name3"}], "even")
    deletes.commit(
        [{"id": 2, "ratio": math.nan}, {"id": 3, "ratio": None}, {"id": None, "ratio": 2.0}], "odd"
    )
    _same_rows(table)
    for change in ("RENAME COLUMN name TO title", "ALTER COLUMN amount TYPE double"):
        table.sql("ALTER TABLE {t} " + change)
    table.sql(insert.replace("%d, %d", "60, 120"))
    deletes.commit([{"title": "name1", "amount": 1.0}, {"title": "name2", "amount": None}], "even")
    deletes.commit([{"ratio": math.nan}, {"ratio": 5.0}], "odd")
    table.sql(insert.replace("%d, %d", "120, 140"))
    assert len(_same_rows(table)) > 60


def _same_rows(table: JavaTable) -> list[Any]:
    loaded = load_table(str(table.location))
    ours = loaded.scan().to_arrow()
    assert loaded.scan().count() == ours.num_rows
    found = rows(ours, "n")
    assert found == rows(table.read(), "n")
    return found
