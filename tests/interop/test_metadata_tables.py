"""Java's metadata tables of our tables agree with what we say, and our metrics with those that Java writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streamlake.catalog.open import create, open_table
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.data_types import BinaryType, PrimitiveType
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from tests.helpers.batch_write import append
from tests.helpers.readers import SparkReader
from tests.helpers.samples import NESTED, PRIMITIVES, Sample
from tests.interop.java_tables import NESTED_DDL, PRIMITIVES_DDL, create_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTED = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


@pytest.fixture(scope="module")
def table(interop_home: Path) -> Table:
    """Three commits into a partitioned, sorted v2 table, the last one to a branch."""
    schema = parse_ddl(PRIMITIVES.ddl)
    made = create(
        str(interop_home / "metadata_tables"),
        schema,
        parse_partition_by(["day(moment)", "bucket(2, id)", "category"], schema),
        parse_sort_by(["category", "id desc"], schema),
    )
    append(made, PRIMITIVES.table.slice(0, 20))
    append(made, PRIMITIVES.table.slice(20, 30))
    append(made, PRIMITIVES.table.slice(50))
    return made


def test_snapshots(table: Table, spark_reader: SparkReader) -> None:
    java = spark_reader.metadata_table(Path(table.location), "snapshots")
    assert [row["snapshot_id"] for row in java] == [each.snapshot_id for each in table.snapshots]
    for row, ours in zip(java, table.snapshots, strict=True):
        assert row["parent_id"] == ours.parent_snapshot_id
        assert row["operation"] == "append"
        assert row["manifest_list"] == ours.manifest_list
        assert round(row["committed_at"].timestamp() * 1000) == ours.timestamp_ms
        assert row["summary"] == {key: value for key, value in ours.summary.items() if key != "operation"}
    assert int(java[-1]["summary"]["total-records"]) == PRIMITIVES.table.num_rows


def test_history_refs_and_log(table: Table, spark_reader: SparkReader) -> None:
    location = Path(table.location)
    history = spark_reader.metadata_table(location, "history")
    assert [(row["snapshot_id"], row["parent_id"], row["is_current_ancestor"]) for row in history] == [
        (each.snapshot_id, each.parent_snapshot_id, True) for each in table.snapshots
    ]
    refs = spark_reader.metadata_table(location, "refs")
    assert [(row["name"], row["type"], row["snapshot_id"]) for row in refs] == [
        ("main", "BRANCH", table.current_snapshot.snapshot_id)
    ]
    log = spark_reader.metadata_table(location, "metadata_log_entries")
    assert [row["latest_snapshot_id"] for row in log] == [
        None,
        *(each.snapshot_id for each in table.snapshots),
    ]


def test_manifests(table: Table, spark_reader: SparkReader) -> None:
    java = {row["path"]: row for row in spark_reader.metadata_table(Path(table.location), "manifests")}
    ours = table.manifests(table.current_snapshot)
    assert set(java) == {each.manifest_path for each in ours}
    for each in ours:
        row = java[each.manifest_path]
        assert row["length"] == each.manifest_length == Path(_local(each.manifest_path)).stat().st_size
        assert row["partition_spec_id"] == each.partition_spec_id
        assert row["added_snapshot_id"] == each.added_snapshot_id
        assert row["added_data_files_count"] == each.added_files_count
        assert row["existing_data_files_count"] == each.existing_files_count
        assert row["deleted_data_files_count"] == each.deleted_files_count
        assert each.partitions is not None
        assert [(part["contains_null"], part["contains_nan"]) for part in row["partition_summaries"]] == [
            (part.contains_null, part.contains_nan) for part in each.partitions
        ]


def test_files(table: Table, spark_reader: SparkReader) -> None:
    java = {row["file_path"]: row for row in spark_reader.metadata_table(Path(table.location), "files")}
    ours = {each.file_path: each for each in _data_files(table)}
    assert set(java) == set(ours)
    assert sum(row["record_count"] for row in java.values()) == PRIMITIVES.table.num_rows
    for path, each in ours.items():
        row = java[path]
        assert row["content"] == 0
        assert row["file_format"] == "PARQUET"
        assert row["spec_id"] == each.spec_id
        assert row["record_count"] == each.record_count == pq.read_metadata(_local(path)).num_rows
        assert row["file_size_in_bytes"] == each.file_size_in_bytes == Path(_local(path)).stat().st_size
        assert row["sort_order_id"] == each.sort_order_id
        assert tuple(row["split_offsets"] or ()) == (each.split_offsets or ())
        assert row["column_sizes"] == each.column_sizes
        for name in COUNTED:
            assert _plain(row[name]) == _plain(getattr(each, name)), name
        assert _partition(row["partition"]) == each.partition


def test_partitions(table: Table, spark_reader: SparkReader) -> None:
    java = spark_reader.metadata_table(Path(table.location), "partitions")
    counted: dict[tuple[Any, ...], list[int]] = {}
    for each in _data_files(table):
        seen = counted.setdefault(each.partition, [0, 0])
        seen[0] += 1
        seen[1] += each.record_count
    assert {_partition(row["partition"]): [row["file_count"], row["record_count"]] for row in java} == counted


def test_bounds_hold_every_value(table: Table, spark_reader: SparkReader) -> None:
    """Java's readable metrics against the values in the files themselves."""
    java = spark_reader.metadata_table(Path(table.location), "files", ["file_path", "readable_metrics"])
    for row in java:
        content = pq.ParquetFile(_local(row["file_path"])).read()
        for name in ("id", "small", "big", "price", "total", "huge", "day", "name", "payload"):
            metrics, values = row["readable_metrics"][name], content[name].drop_null()
            assert metrics["value_count"] == content.num_rows
            assert metrics["null_value_count"] == content[name].null_count
            for value in values.to_pylist():
                assert metrics["lower_bound"] is None or metrics["lower_bound"] <= value
                assert metrics["upper_bound"] is None or metrics["upper_bound"] >= value
        for name in ("ratio", "amount"):
            metrics = row["readable_metrics"][name]
            assert metrics["nan_value_count"] == pc.sum(
                pc.is_nan(content[name]).cast(pa.int64())
            ).as_py() or (content[name].null_count == content.num_rows)


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
@pytest.mark.parametrize(
    ("sample", "ddl"), [(PRIMITIVES, PRIMITIVES_DDL), (NESTED, NESTED_DDL)], ids=["primitives", "nested"]
)
def test_metrics_are_those_of_java(
    file_format: str, sample: Sample, ddl: str, iceberg_spark: SparkSession, spark_home: Path
) -> None:
    """The same rows in one file of each writer: counts and bounds are equal, byte for byte.

    Java has no metrics for Avro, so ours are compared with its Parquet's; for ORC it counts structs, lists and maps too,
    and keeps no bounds of binary columns.
    """
    measured = "parquet" if file_format == "avro" else file_format
    java = create_java_table(iceberg_spark, spark_home, ddl, properties={"write.format.default": measured})
    java.insert(sample.table)
    ours = create(
        str(spark_home / "ice" / "java" / f"metrics_{sample.name}_{file_format}"),
        open_table(str(java.location)).schema,
        properties={"write.format.default": file_format},
    )
    append(ours, sample.table)
    (theirs,), (our_file,) = _data_files(open_table(str(java.location))), _data_files(ours)
    assert our_file.record_count == theirs.record_count
    schema = ours.schema
    primitives = {key for key, part in schema.fields_by_id.items() if isinstance(part.type, PrimitiveType)}
    binaries = {key for key in primitives if isinstance(schema.fields_by_id[key].type, BinaryType)}
    for name in COUNTED:
        found, expected = _plain(getattr(our_file, name)), _plain(getattr(theirs, name))
        if measured == "orc":
            expected = {key: value for key, value in expected.items() if key in primitives}
            if "bounds" in name:
                assert not binaries & set(expected)
                found = {key: value for key, value in found.items() if key not in binaries}
            if name == "upper_bounds":
                # A text of the highest code points cannot be rounded up: Java's ORC then keeps it whole, we keep none.
                expected = {key: value for key, value in expected.items() if len(value) <= 64}
        assert found == expected, name


def _data_files(table: Table) -> list[DataFile]:
    return [
        entry.data_file
        for manifest in table.manifests(table.current_snapshot)
        for entry in read_manifest(table.io, manifest, table.specs, table.schema)
    ]


def _local(path: str) -> str:
    return path.removeprefix("file:")


def _plain(counts: Any) -> dict[int, Any]:
    return {
        key: bytes(value) if isinstance(value, bytearray) else value for key, value in (counts or {}).items()
    }


def _partition(row: dict[str, Any]) -> tuple[Any, ...]:
    """Java shows a day partition as a date, ours is its number."""
    return tuple(
        value if not hasattr(value, "toordinal") else value.toordinal() - 719_163 for value in row.values()
    )
