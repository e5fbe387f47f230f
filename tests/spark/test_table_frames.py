"""`spark.readStream.format("streamlake")`: a table as a stream of rows, in between what SQL does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from streamlake import IcebergSink, load_table
from streamlake.pipeline.iceberg.frames.iceberg_data_source import register
from streamlake.tables import LoadedTable, create_table
from tests.unit.pipeline.iceberg.table_streams import add, compact, overwrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_SECONDS = 240


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
    query = sink.start(found, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    assert query.awaitTermination(RUN_SECONDS)
    return sorted(load_table(home / "copy").scan(columns=["id"]).to_arrow()["id"].to_pylist())


def offsets(home: Path) -> list[dict[str, Any]]:
    """The source's offsets in the checkpoint, oldest first."""
    logs = sorted((home / "checkpoint/offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2]) for path in logs]


def test_a_table_is_copied_over_restarts(spark, table, tmp_path):
    for number in range(3):
        add(table, number)
    assert copied(frame(spark, table), tmp_path) == [0, 1, 2]
    assert copied(frame(spark, table), tmp_path) == [0, 1, 2]
    [first] = offsets(tmp_path)
    assert first["start"] == {
        "snapshot-id": table.current_snapshot.snapshot_id,
        "sequence-number": 3,
        "position": [0, 0],
        "scan": True,
    }
    add(table, 3)
    compact(table)
    add(table, 4)
    assert copied(frame(spark, table), tmp_path) == [0, 1, 2, 3, 4]
    # A crash before the last micro-batch is committed.
    for name in ("commits/1", "commits/.1.crc"):
        Path(tmp_path, "checkpoint", name).unlink(missing_ok=True)
    add(table, 5)
    with pytest.raises(StreamingQueryException, match="planned with another filter"):
        copied(frame(spark, table, filter="id < 100"), tmp_path)
    assert copied(frame(spark, table), tmp_path) == [0, 1, 2, 3, 4, 5]
    assert len(offsets(tmp_path)) == 3
    overwrite(table, "category = 'a'", 8)
    with pytest.raises(StreamingQueryException, match="on-delete"):
        copied(frame(spark, table), tmp_path)
    assert copied(frame(spark, table, on_delete="skip"), tmp_path) == [0, 1, 2, 3, 4, 5]
