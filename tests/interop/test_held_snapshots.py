"""Snapshots that a stream holds, beside Iceberg's own expiry: what is not read yet stays, and the stream goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import IcebergSink, IcebergSource, create_table, load_table
from streamlake.errors import LineageError
from streamlake.pipeline.iceberg.snapshot_hold import HOLD_PREFIX
from tests.unit.pipeline.iceberg.table_streams import add

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.iceberg_runtime


@pytest.mark.parametrize("holds", [True, False])
def test_expiry_does_not_pass_the_read_position(
    iceberg_spark: SparkSession, interop_home: Path, tmp_path: Path, holds: bool
) -> None:
    name = f"held{int(holds)}"
    table = create_table(interop_home / name, "id long, category string")
    source = IcebergSource(
        table.location,
        options={
            "hold-snapshots": holds,
            "starting-strategy": "incremental-from-earliest-snapshot",
            "max-planning-snapshot-count": 1,
            "monitor-interval": "0 s",
        },
    )

    written = threading.Event()

    def start(trigger: dict[str, Any]) -> Any:
        sink = IcebergSink(str(tmp_path / "copy"), create=True, on_commit=lambda receipt: written.set())
        return sink.start(source, checkpoint_location=str(tmp_path / "checkpoint"), trigger=trigger)

    def run() -> None:
        query = start({"availableNow": True})
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    made = [add(table, number) for number in range(8)]
    query = start({"processingTime": "1 second"})
    try:
        assert written.wait(60)
    finally:
        query.stop()
    read = len(ids(tmp_path))
    assert 0 < read < 6, "the stream lags behind"
    iceberg_spark.sql(f"REFRESH TABLE ice.interop.{name}")
    iceberg_spark.sql(
        f"CALL ice.system.expire_snapshots(table => 'interop.{name}', older_than => now(), retain_last => 1)"
    )
    table.refresh()
    left = [each.snapshot_id for each in table.metadata.snapshots]
    if not holds:
        assert left == made[-1:]
        with pytest.raises(LineageError, match="expired"):
            run()
        return
    assert left[-(8 - read) :] == made[read:]
    run()
    assert ids(tmp_path) == list(range(8))
    table.refresh()
    [hold] = [ref for name, ref in table.metadata.refs.items() if name.startswith(HOLD_PREFIX)]
    assert (hold.snapshot_id, hold.min_snapshots_to_keep) == (made[-1], 1)


def ids(home: Path) -> list[int]:
    return sorted(load_table(str(home / "copy")).scan(columns=["id"]).to_arrow()["id"].to_pylist())
