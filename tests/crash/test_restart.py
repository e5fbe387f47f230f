"""A stream whose checkpoint directory has lost the end of Spark's commit log replays what the table holds already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from tests.crash import stream
from tests.helpers.invariants import check_table
from tests.helpers.readers import DuckDbReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash


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
