"""A driver is killed at each edge of the commit protocol and started again: every row is there once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from tests.crash import crash_points, stream
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.readers import DuckDbReader
from tests.helpers.spark import run_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash
DRIVER = Path(__file__).with_name("driver.py")


@pytest.mark.parametrize("point", crash_points.POINTS)
def test_killed_driver_loses_and_doubles_nothing(
    point: str, spark: SparkSession, tmp_path: Path, duckdb_reader: DuckDbReader
) -> None:
    stream.land(tmp_path)
    done = run_driver(DRIVER, tmp_path, point, home=tmp_path / "driver", check=False)
    assert done.returncode == -9, done.stderr[-3000:]
    crashed = load_table(str(tmp_path / "table"))
    committed = crash_points.CRASHING_CHECKPOINT + (point == crash_points.SWAPPED)
    assert len(crashed.snapshots) == committed
    if point in crash_points.BEFORE_STAGING:
        live = {Path(file.file_path).name for file in live_data_files(open_table(crashed.location))}
        assert {path.name for path in (tmp_path / "table" / "data").rglob("*.parquet")} > live, (
            "files of the dead"
        )
    assert _spark_commits(tmp_path) == list(range(crash_points.CRASHING_CHECKPOINT))

    stream.run(spark, tmp_path)
    _check(tmp_path, duckdb_reader, stream.FILES)

    stream.land(tmp_path, first=stream.FILES, files=1)
    stream.run(spark, tmp_path)
    _check(tmp_path, duckdb_reader, stream.FILES + 1)


def test_replay_after_losing_the_end_of_the_commit_log(
    spark: SparkSession, tmp_path: Path, duckdb_reader: DuckDbReader
) -> None:
    stream.land(tmp_path, files=3)
    stream.run(spark, tmp_path)
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    stream.land(tmp_path, first=3, files=1)
    replayed = stream.run(spark, tmp_path)
    assert [receipt.outcome.value for receipt in replayed.receipts] == ["skipped", "committed"]
    _check(tmp_path, duckdb_reader, 4)


def _check(home: Path, duckdb_reader: DuckDbReader, checkpoints: int) -> None:
    """One snapshot a checkpoint, in order; every row once, as two engines see it."""
    total = checkpoints * stream.ROWS_PER_FILE
    location = home / "table"
    table = open_table(str(location))
    check_table(table, files_exist=True)
    ids = [snapshot.summary["streamlake.max-committed-checkpoint-id"] for snapshot in table.snapshots]
    assert ids == [str(number) for number in range(checkpoints)]
    assert all(snapshot.summary["added-records"] == str(stream.ROWS_PER_FILE) for snapshot in table.snapshots)
    ours = load_table(str(location)).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(ours) == list(range(total))
    counted = duckdb_reader.sql(
        f"select count(*), count(distinct id), min(id), max(id) from {duckdb_reader.relation(location)}"
    )
    assert [column[0].as_py() for column in counted.columns] == [total, total, 0, total - 1]
    assert _spark_commits(home) == list(range(checkpoints))


def _spark_commits(home: Path) -> list[int]:
    return sorted(
        int(path.name) for path in (home / "checkpoint" / "commits").iterdir() if path.name.isdigit()
    )
