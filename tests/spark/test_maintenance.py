"""A stream with maintenance beside it: its files stay few, its rows are right, and it never waits for the maintenance."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamlake.maintain.background.lease import lease_of
from tests.helpers.change_stream import ChangeStream, Row

EVERY_FEW = {
    "rate-limit-seconds": 0,
    "compact.schedule.data-file-count": 12,
    "expire.schedule.commit-count": 8,
    "manifests.schedule.commit-count": 8,
}
AGREED = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "5"}


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> ChangeStream:
    return ChangeStream(spark, tmp_path)


def changes(number: int) -> list[Row]:
    """Each checkpoint updates some rows of every one before it, and deletes one."""
    ids = sorted({*range(5 * number, 5 * number + 5), *range(number % 3, 5 * number, 3)})
    return [("-D" if each == number else "+U", each, f"p{each % 2}", f"{number}-{each}") for each in ids]


def land_until(stream: ChangeStream, sink: Any, query: Any, is_enough: Any, most: int = 150) -> int:
    """Land files of changes and wait for each, until the maintenance has done enough."""
    for number in range(most):
        stream.land(changes(number))
        query.processAllAvailable()
        if number >= 20 and is_enough():
            return number + 1
    raise AssertionError(f"{most} checkpoints, and the maintenance: {sink.maintained}")


@pytest.mark.parametrize(("mode", "version"), [("position", 3), ("equality", 2)])
def test_files_stay_few_and_rows_right(mode: str, version: int, stream: ChangeStream) -> None:
    sink = stream.sink(delete_mode=mode, format_version=version, properties=AGREED, maintenance=EVERY_FEW)
    query = sink.start(stream.frame(), checkpoint_location=stream.checkpoint)
    done: set[str] = set()

    def has_done_all() -> bool:
        for each in sink.maintained:
            assert each.error is None
            done.update(each.actions)
        return {"compact", "expire", "manifests"} <= done

    try:
        checkpoints = land_until(stream, sink, query, has_done_all)
    finally:
        began = time.monotonic()
        query.stop()
        stopped_in = time.monotonic() - began
    assert stopped_in < 20
    stream.check()
    table = stream.table
    operations = [snapshot.operation for snapshot in table.snapshots]
    assert len(operations) < checkpoints
    assert "replace" in operations
    assert table.current_snapshot is not None
    assert int(table.current_snapshot.summary["total-data-files"]) < checkpoints
    # Another start goes on with a table that was maintained.
    stream.land(changes(checkpoints))
    stream.run(stream.sink(delete_mode=mode))
    stream.check()


def test_an_error_of_the_maintenance_does_not_reach_the_stream(
    stream: ChangeStream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STREAMLAKE_FAILPOINTS", "maintenance-begun=kill")
    sink = stream.sink(maintenance=EVERY_FEW)
    query = sink.start(stream.frame(), checkpoint_location=stream.checkpoint)
    try:
        with caplog.at_level(logging.WARNING):
            land_until(stream, sink, query, lambda: any(each.error for each in sink.maintained))
    finally:
        query.stop()
    assert sink.error is None
    assert "its process has ended with code -9" in caplog.text
    stream.check()
    lease = lease_of(stream.table.properties)
    assert lease is not None
