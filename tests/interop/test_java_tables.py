"""Tables written by Iceberg's Java implementation: we read them, append to them, and Java reads the sum."""

from __future__ import annotations

import datetime
import gzip
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.operate.doctor.diagnosis import diagnose
from tests.helpers.batch_write import append
from tests.helpers.readers import SparkReader, current_metadata_file, rows
from tests.helpers.samples import NESTED, PRIMITIVES
from tests.interop.java_tables import NESTED_DDL, JavaTable, create_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, SECOND, THIRD = (PRIMITIVES.table.slice(start, 20) for start in (0, 20, 40))

SPECS = [
    (),
    ("category",),
    ("days(moment)",),
    ("months(at)", "bucket(3, id)"),
    ("years(day)", "truncate(2, name)"),
    ("hours(at)", "flag"),
    ("truncate(100, big)",),
]
MATRIX = [
    *((version, "parquet", spec) for version in (1, 2, 3) for spec in SPECS[:4]),
    *((version, file_format, SPECS[2]) for version in (1, 2, 3) for file_format in ("avro", "orc")),
    *((2, "parquet", spec) for spec in SPECS[4:]),
]


def _ours(table: JavaTable, **scan: object) -> pa.Table:
    return load_table(str(table.location)).scan(**scan).to_arrow()


@pytest.mark.parametrize(("version", "file_format", "spec"), MATRIX)
def test_read_append_read_again(
    version: int, file_format: str, spec: tuple[str, ...], iceberg_spark: SparkSession, spark_home: Path
) -> None:
    table = create_java_table(
        iceberg_spark,
        spark_home,
        partitioned_by=spec,
        properties={"write.format.default": file_format},
        format_version=str(version),
    )
    first, second, third = (_storable(each, file_format) for each in (FIRST, SECOND, THIRD))
    table.insert(first)
    assert rows(_ours(table), "id") == rows(first, "id")
    ours = open_table(str(table.location))
    if version == 1:
        with pytest.raises(FeatureUnsupportedError, match=r"version 1|format-version|v1"):
            append(ours, second)
        table.insert(second)
    else:
        append(ours, second)
    both = rows(pa.concat_tables([first, second]), "id")
    assert rows(table.read(), "id") == both
    table.insert(third)
    everything = rows(pa.concat_tables([first, second, third]), "id")
    assert rows(_ours(table), "id") == everything
    assert rows(table.read(), "id") == everything


def _storable(table: pa.Table, file_format: str) -> pa.Table:
    """`table` without timestamps of the last second before 1970, of which Java's ORC keeps the fraction only."""
    for at, part in enumerate(table.schema):
        if file_format == "orc" and pa.types.is_timestamp(part.type):
            micros = table.column(at).cast(pa.int64())
            lost = pc.and_(pc.greater(micros, -1_000_000), pc.less(micros, 0))
            table = table.set_column(at, part, pc.if_else(lost, pa.scalar(None, part.type), table.column(at)))
    return table


def test_last_second_before_1970_in_orc(iceberg_spark: SparkSession, spark_home: Path) -> None:
    """Java's ORC loses it, and we read what Java reads; ours keeps its last millisecond and refuses the rest."""
    table = create_java_table(
        iceberg_spark,
        spark_home,
        "id bigint not null, at timestamp_ntz",
        properties={"write.format.default": "orc"},
    )
    times = [datetime.datetime(1970, 1, 1) - datetime.timedelta(microseconds=each) for each in (1, 500_000)]
    values = pa.table(
        {"id": [1, 2], "at": pa.array(times, pa.timestamp("us"))},
        pa.schema([pa.field("id", pa.int64(), False), ("at", pa.timestamp("us"))]),
    )
    table.insert(values)
    read = [(1, 999_999_000), (2, 500_000_000)]
    assert rows(table.read()) == rows(_ours(table)) == read
    append(open_table(str(table.location)), values.slice(0, 1))
    assert rows(table.read()) == rows(_ours(table)) == sorted([(1, -1000), *read])
    with pytest.raises(DataInvalidError, match="last second before 1970"):
        append(open_table(str(table.location)), values)


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
def test_nested_values(file_format: str, iceberg_spark: SparkSession, spark_home: Path) -> None:
    table = create_java_table(
        iceberg_spark, spark_home, NESTED_DDL, properties={"write.format.default": file_format}
    )
    table.insert(NESTED.table)
    assert rows(_ours(table), "id") == rows(NESTED.table, "id")
    append(open_table(str(table.location)), NESTED.table)
    assert rows(table.read(), "id") == rows(pa.concat_tables([NESTED.table] * 2), "id")


def test_evolved_schema_and_spec(iceberg_spark: SparkSession, spark_home: Path) -> None:
    """Columns renamed, widened, added and dropped, and the partition spec changed, with files from before and after."""
    table = create_java_table(
        iceberg_spark,
        spark_home,
        "id bigint, n int, f float, d decimal(5,2), gone string, s struct<a: int>",
        ("gone",),
    )
    table.sql("INSERT INTO {t} VALUES (1, 1, 1.5, 1.25, 'x', struct(1)), (2, null, null, null, null, null)")
    for change in (
        "DROP PARTITION FIELD gone",
        "DROP COLUMN gone",
        "ALTER COLUMN n TYPE bigint",
        "ALTER COLUMN f TYPE double",
        "ALTER COLUMN d TYPE decimal(9,2)",
        "RENAME COLUMN n TO number",
        "ADD COLUMN s.b string",
        "ADD COLUMN gone string AFTER id",
        "ADD PARTITION FIELD bucket(2, id)",
        "ADD PARTITION FIELD truncate(1, gone) AS first_letter",
    ):
        table.sql("ALTER TABLE {t} " + change)
    table.sql("INSERT INTO {t} VALUES (3, 'new', 3000000000, 3.5, 1234567.25, struct(3, 'b'))")
    assert _ours(table).column_names == ["id", "gone", "number", "f", "d", "s"]
    assert rows(_ours(table), "id") == rows(table.read(), "id")
    assert _ours(table, filter="gone is null", columns=["id"])["id"].to_pylist() == [1, 2]
    assert _ours(table, filter="gone = 'new'", columns=["id"])["id"].to_pylist() == [3]
    fourth = _ours(table, filter="id = 3")
    append(open_table(str(table.location)), fourth)
    assert rows(table.read(), "id") == rows(_ours(table), "id")
    assert len(table.sql("SELECT * FROM {t} WHERE number = 3000000000 AND gone = 'new'")) == 2


@pytest.mark.parametrize("version", [2, 3])
def test_rows_deleted_by_java_stay_deleted(
    version: int, iceberg_spark: SparkSession, spark_home: Path
) -> None:
    """Position delete files (v2) and deletion vectors (v3) of a merge-on-read DELETE."""
    table = create_java_table(
        iceberg_spark,
        spark_home,
        "id bigint, v string",
        properties={"write.delete.mode": "merge-on-read"},
        format_version=str(version),
    )
    table.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, cast(id as string) FROM range(1000)")
    table.sql("DELETE FROM {t} WHERE id % 10 = 3")
    assert sum(row["content"] != 0 for row in table.sql("SELECT content FROM {t}.files")) > 0
    expected = [each for each in range(1000) if each % 10 != 3]
    assert sorted(_ours(table, columns=["id"])["id"].to_pylist()) == expected
    append(open_table(str(table.location)), pa.table({"id": [5000], "v": ["new"]}))
    assert sorted(row["id"] for row in table.sql("SELECT id FROM {t}")) == [*expected, 5000]


def test_branches_and_tags_of_java(iceberg_spark: SparkSession, spark_home: Path) -> None:
    table = create_java_table(iceberg_spark, spark_home, "id bigint")
    table.sql("INSERT INTO {t} VALUES (1)")
    table.sql("ALTER TABLE {t} CREATE TAG first RETAIN 30 DAYS")
    table.sql("ALTER TABLE {t} CREATE BRANCH audit WITH SNAPSHOT RETENTION 3 SNAPSHOTS")
    table.sql("INSERT INTO {t} VALUES (2)")
    table.sql("INSERT INTO {t}.branch_audit VALUES (3)")
    ours = load_table(str(table.location))
    assert sorted(ours.scan(ref="audit").to_arrow()["id"].to_pylist()) == [1, 3]
    assert ours.scan(ref="first").to_arrow()["id"].to_pylist() == [1]
    assert ours.refs["audit"].min_snapshots_to_keep == 3
    assert ours.refs["first"].max_ref_age_ms == 30 * 24 * 3600 * 1000

    append(open_table(str(table.location)), pa.table({"id": [4]}), branch="audit")
    assert sorted(row["id"] for row in table.sql("SELECT id FROM {t}.branch_audit")) == [1, 3, 4]
    assert sorted(row["id"] for row in table.sql("SELECT id FROM {t}")) == [1, 2]
    refs = {row["name"]: row for row in table.sql("SELECT * FROM {t}.refs")}
    assert refs["audit"]["min_snapshots_to_keep"] == 3
    assert refs["first"]["max_reference_age_in_ms"] == 30 * 24 * 3600 * 1000


def test_engines_in_turn(iceberg_spark: SparkSession, spark_home: Path) -> None:
    """Java's Hadoop catalog and ours append to one table by turns; its checksum side files never go stale."""
    table = create_java_table(iceberg_spark, spark_home, "id bigint, who string", ("who",))
    expected = []
    for turn in range(6):
        table.sql(f"INSERT INTO {{t}} VALUES ({turn}, 'java')")
        append(open_table(str(table.location)), pa.table({"id": [turn], "who": ["ours"]}))
        expected += [(turn, "java"), (turn, "ours")]
        assert sorted((row["id"], row["who"]) for row in table.sql("SELECT * FROM {t}")) == sorted(expected)
        assert rows(_ours(table)) == sorted(expected)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('team'='java')")
    ours = open_table(str(table.location))
    assert ours.properties["team"] == "java"
    append(ours, pa.table({"id": [99], "who": ["ours"]}))
    assert table.sql("SELECT count(*) AS n FROM {t}") == [{"n": 13}]
    assert len(table.sql("SELECT * FROM {t}.snapshots")) == 13
    hint = (table.location / "metadata" / "version-hint.text").read_text().strip()
    assert current_metadata_file(table.location).name == f"v{hint}.metadata.json"


def test_fresh_java_reads_what_we_committed_last(
    iceberg_spark: SparkSession, spark_home: Path, spark_reader: SparkReader
) -> None:
    """A Java reader by path, with no table in its cache, finds the newest version by the hint that we wrote."""
    table = create_java_table(iceberg_spark, spark_home, "id bigint")
    table.sql("INSERT INTO {t} VALUES (1)")
    for value in range(2, 6):
        append(open_table(str(table.location)), pa.table({"id": [value]}))
        assert sorted(spark_reader.read(table.location)["id"].to_pylist()) == list(range(1, value + 1))


def test_gzip_metadata_both_ways(iceberg_spark: SparkSession, spark_home: Path) -> None:
    table = create_java_table(
        iceberg_spark, spark_home, "id bigint", properties={"write.metadata.compression-codec": "gzip"}
    )
    table.sql("INSERT INTO {t} VALUES (1)")
    newest = current_metadata_file(table.location)
    assert newest.name.endswith(".gz.metadata.json")
    append(open_table(str(table.location)), pa.table({"id": [2]}))
    newest = current_metadata_file(table.location)
    assert json.loads(gzip.decompress(newest.read_bytes()))["last-sequence-number"] == 2
    table.sql("INSERT INTO {t} VALUES (3)")
    assert sorted(_ours(table)["id"].to_pylist()) == [1, 2, 3]
    assert sorted(row["id"] for row in table.sql("SELECT id FROM {t}")) == [1, 2, 3]


def test_java_maintenance_after_our_appends(iceberg_spark: SparkSession, spark_home: Path) -> None:
    """Compaction, manifest rewriting, expiry and orphan removal by Java keep our rows, find no orphans of ours, and we
    go on after each."""
    table = create_java_table(iceberg_spark, spark_home, "id bigint, part int", ("part",))
    where = table.name.removeprefix("ice.")
    expected = []
    for value in range(8):
        append(
            open_table(str(table.location)),
            pa.table({"id": [value], "part": pa.array([value % 2], pa.int32())}),
        )
        expected.append(value)
    for call in (
        f"CALL ice.system.rewrite_data_files(table => '{where}', options => map('min-input-files', '2'))",
        f"CALL ice.system.rewrite_manifests('{where}')",
        f"CALL ice.system.expire_snapshots(table => '{where}', older_than => now(), retain_last => 1)",
    ):
        table.sql(call)
        assert sorted(_ours(table)["id"].to_pylist()) == expected
        value = 100 + len(expected)
        append(open_table(str(table.location)), pa.table({"id": [value], "part": pa.array([1], pa.int32())}))
        expected.append(value)
        assert sorted(row["id"] for row in table.sql("SELECT id FROM {t}")) == expected
    jvm = iceberg_spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        iceberg_spark._jsparkSession, table.name
    )
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(iceberg_spark._jsparkSession)
    orphans = actions.deleteOrphanFiles(loaded).olderThan(int(time.time() * 1000) + 60_000).execute()
    assert [str(each) for each in orphans.orphanFileLocations()] == []
    assert diagnose(str(table.location)).violations == ()
    assert sorted(row["id"] for row in table.sql("SELECT id FROM {t}")) == expected
