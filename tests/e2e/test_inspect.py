"""What `streamlake inspect` says is what Iceberg's own metadata tables say."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.read import metadata_tables
from tests.helpers.batch_write import append
from tests.helpers.command_line import streamlake
from tests.helpers.readers import SparkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("score", pa.float64()),
        ("raw", pa.binary()),
        ("born", pa.date32()),
        ("nested", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)


def rows(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "ts": [None if at % 7 == 0 else datetime(1969, 12, 30 + at % 2, at % 24, tzinfo=timezone.utc) for at in ids],
            "name": [None if at % 5 == 0 else f"größe-{at % 4}-a name longer than sixteen" for at in ids],
            "amount": [Decimal(at) / 100 - 3 for at in ids],
            "score": [float("nan") if at % 6 == 0 else -0.0 if at % 6 == 1 else at / 3 for at in ids],
            "raw": [bytes([at]) for at in ids],
            "born": [datetime(1950 + at, 1, 1).date() for at in ids],
            "nested": [None if at % 9 == 0 else {"a": at, "b": str(at)} for at in ids],
            "tags": [["x"] * (at % 3) for at in ids],
        },
        schema=SCHEMA,
    )  # fmt: skip


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory, iceberg_spark: SparkSession) -> Path:
    """Two appends of ours, a new partition field and an append by Iceberg's runtime, and one more of ours."""
    home = tmp_path_factory.mktemp("inspect") / "t"
    table = create_table(home, SCHEMA, partition_by=["day(ts)", "bucket(3, id)", "truncate(4, name)"])
    append(table.table, rows(range(12)))
    append(table.table, rows(range(12, 24)))
    catalog = iceberg_spark._jvm.org.apache.iceberg.hadoop.HadoopTables(
        iceberg_spark.sparkContext._jsc.hadoopConfiguration()
    )
    catalog.load(str(home)).updateSpec().addField("born").removeField("id_bucket").commit()
    frame = iceberg_spark.createDataFrame(rows(range(24, 30)).to_pandas(), _spark_schema(iceberg_spark, home))
    frame.write.format("iceberg").mode("append").save(f"file://{home}")
    table.refresh()
    append(table.table, rows(range(30, 34)))
    return home


def _spark_schema(spark: SparkSession, home: Path) -> Any:
    return spark.read.format("iceberg").load(f"file://{home}").schema


def java(spark_reader: SparkReader, location: Path, name: str) -> list[dict[str, Any]]:
    return [_plain(row) for row in spark_reader.metadata_table(location, name)]


def ours(location: Path, name: str) -> list[dict[str, Any]]:
    table = load_table(location).table
    if name in ("files", "manifests", "partitions"):
        made = getattr(metadata_tables, f"{name[:-1]}_rows")(table, table.current_snapshot)
    else:
        made = {
            "snapshots": metadata_tables.snapshot_rows,
            "history": metadata_tables.history_rows,
            "refs": metadata_tables.ref_rows,
        }[name](table)
    return [_plain(row) for row in made]


def _plain(value: Any) -> Any:
    """Comparable: bytearrays as bytes, NaN as text, times of Spark (naive, in the session's zone) as UTC."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    if isinstance(value, float):
        return repr(value)
    return value


def _sorted(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(table, key=lambda row: json.dumps(row, default=str, sort_keys=True))


@pytest.mark.parametrize("name", ["snapshots", "history", "refs", "manifests", "partitions"])
def test_metadata_table(name: str, location: Path, spark_reader: SparkReader) -> None:
    expected = java(spark_reader, location, name)
    assert expected, "the comparison needs rows"
    got = ours(location, name)
    assert [set(row) for row in got] == [set(row) for row in expected]
    assert _sorted(got) == _sorted(expected)


def test_files(location: Path, spark_reader: SparkReader) -> None:
    expected = {row["file_path"]: row for row in java(spark_reader, location, "files")}
    got = {row["file_path"]: row for row in ours(location, "files")}
    assert got.keys() == expected.keys()
    for path, row in expected.items():
        metrics, bounds = row.pop("readable_metrics"), got[path].pop("readable_metrics")
        assert bounds == metrics, path
        assert {key: got[path][key] for key in row} == row, path


def test_command_line_json(location: Path) -> None:
    done = streamlake("inspect", location, "partitions", "--json", cwd=location)
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(row["record_count"] for row in json.loads(done.stdout)) == 34


def test_nothing_of_spark_is_started(tmp_path: Path) -> None:
    create_table(tmp_path / "t", "id long")
    done = streamlake(
        "inspect",
        "t",
        cwd=tmp_path,
        extra={"JAVA_HOME": "/nowhere", "PATH": str(Path(sys.executable).parent)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "none: the table is empty" in done.stdout
