"""A table as a stream beside Iceberg's own: the same rows as its Spark source reads, the same splits as Java plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake.pipeline.iceberg.batch_plan import batch_plan
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.table.producers.append_files import AppendFiles
from streamlake.tables import LoadedTable, create_table
from tests.unit.pipeline.iceberg.table_streams import Stream, add, compact, overwrite
from tests.unit.read.written_tables import append, data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.iceberg_runtime
SKIPS = {"streaming-skip-delete-snapshots": "true", "streaming-skip-overwrite-snapshots": "true"}


def theirs(spark: SparkSession, table: LoadedTable, home: Path, **options: str) -> list[list[int]]:
    """The ids of each micro-batch of Iceberg's Spark source, from the table's beginning to its end."""
    batches: list[list[int]] = []

    def take(frame: Any, batch_id: int) -> None:
        del batch_id
        batches.append(sorted(row[0] for row in frame.select("id").collect()))

    frame = spark.readStream.format("iceberg").options(**SKIPS, **options).load(f"file://{table.location}")
    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(home))
        .trigger(availableNow=True)
    )
    query.start().awaitTermination()
    return batches


def test_the_same_rows_in_the_same_micro_batches(
    iceberg_spark: SparkSession, interop_home: Path, tmp_path: Path
) -> None:
    table = create_table(interop_home / "streamed", "id long, category string", partition_by=["category"])
    for start in range(0, 12, 4):
        add(table, *range(start, start + 4))
    compact(table)
    add(table, 12, 13)
    overwrite(table, "category = 'a'", 100)
    add(table, 14, 15)
    stream = Stream(table, starting_strategy="incremental-from-earliest-snapshot", on_delete="skip")
    assert sorted(stream.run()) == list(range(16))
    found = theirs(iceberg_spark, table, tmp_path / "all")
    assert sorted(each for batch in found for each in batch) == stream.all()
    limited = Stream(
        table,
        starting_strategy="incremental-from-earliest-snapshot",
        on_delete="skip",
        max_files_per_trigger=3,
    )
    limited.run()
    found = theirs(iceberg_spark, table, tmp_path / "limited", **{"streaming-max-files-per-micro-batch": "3"})
    ours = [sorted(batch) for batch in limited.batches]
    assert [len(batch) for batch in found if batch] == [len(batch) for batch in ours if batch]
    assert sorted(each for batch in found for each in batch) == limited.all()


@pytest.mark.parametrize(
    ("split_size", "lookback", "open_cost"), [(900, 10, 1), (900, 1, 400), (1 << 20, 10, 1 << 16), (1, 1, 0)]
)
def test_the_same_splits(
    iceberg_spark: SparkSession, interop_home: Path, split_size: int, lookback: int, open_cost: int
) -> None:
    location = interop_home / f"split{split_size}_{lookback}"
    table = create_table(location, "id long, category string")
    row_groups = {"write.parquet.row-group-size-bytes": "1"}
    operation = AppendFiles(table.table)
    for rows in (3, 1, 6, 2, 1, 1):
        for file in data_files(table, [{"id": n, "category": "a"} for n in range(rows)], **row_groups):
            operation.append_file(file)
    operation.commit()
    table.refresh()
    named = {"split-size": split_size, "split-lookback": lookback, "split-file-open-cost": open_cost}
    plan = batch_plan(table.table, IcebergSource(table.location, options=named))
    ours = [
        [(Path(part.task.data_file.file_path).name, part.stop) for part in split.parts]
        for split in plan.splits
    ]

    jvm: Any = iceberg_spark._jvm
    conf = iceberg_spark._jsparkSession.sessionState().newHadoopConf()
    scan = jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(f"file://{location}").newScan()
    for name, value in zip(
        ("target-size", "planning-lookback", "open-file-cost"), named.values(), strict=True
    ):
        scan = scan.option(f"read.split.{name}", str(value))
    java = []
    for group in scan.planTasks().iterator():
        java.append(
            [(Path(each.file().location()).name, each.start() + each.length()) for each in group.files()]
        )
    assert ours == java


def test_the_same_rows_of_a_batch(iceberg_spark: SparkSession, interop_home: Path) -> None:
    table = create_table(interop_home / "batched", "id long, category string", partition_by=["category"])
    snapshots = [append(table, [{"id": number, "category": "a"}]).snapshot_id for number in range(4)]
    between = {"start-snapshot-id": str(snapshots[0])}
    for options, spelled in (
        (between, between),
        (between | {"end-snapshot-id": str(snapshots[2])},) * 2,
        ({"snapshot-id": str(snapshots[1])}, {"versionAsOf": str(snapshots[1])}),
    ):
        frame = iceberg_spark.read.format("iceberg").options(**spelled).load(f"file://{table.location}")
        plan = batch_plan(table.table, IcebergSource(table.location, options=options))
        ours = [
            number
            for split in plan.splits
            for rows in plan.scan.read(split)
            for number in rows.column("id").to_pylist()
        ]
        assert sorted(ours) == sorted(row[0] for row in frame.select("id").collect())
