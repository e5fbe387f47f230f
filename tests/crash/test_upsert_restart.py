"""A driver that upserts is killed at the edges of the commit protocol and started again: the table is the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.commit.receipt import Outcome
from streamlake.pipeline.indexed_rows import IndexedRows
from streamlake.spec.data_file import FileContent
from tests.crash import upsert_stream
from tests.crash.crash_points import (
    BEFORE_STAGING,
    CRASHING_CHECKPOINT,
    POINTS,
    STAGED,
    STAGING,
    SWAPPED,
    SWAPPING,
    WRITING,
)
from tests.crash.upsert_stream import Deletes, check_table_of, referenced_files, written_files
from tests.helpers.invariants import live_entries
from tests.helpers.readers import DuckDbReader
from tests.helpers.spark import run_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash
DRIVER = Path(__file__).with_name("upsert_driver.py")
POSITION_3, POSITION_2 = Deletes("position", 3), Deletes("position", 2)
COPY_ON_WRITE, EQUALITY = Deletes("copy-on-write", 2), Deletes("equality", 2)
CHOSEN = (
    (POSITION_3, WRITING),
    (POSITION_3, STAGED),
    (POSITION_3, SWAPPED),
    (POSITION_2, SWAPPING),
    (COPY_ON_WRITE, STAGED),
    (EQUALITY, STAGING),
)
CASES = [
    pytest.param(deletes, point, marks=() if (deletes, point) in CHOSEN else pytest.mark.soak)
    for deletes in (POSITION_3, POSITION_2, COPY_ON_WRITE, EQUALITY)
    for point in POINTS
]


@pytest.mark.parametrize(("deletes", "point"), CASES, ids=lambda value: getattr(value, "text", value))
def test_killed_driver_leaves_the_table_that_it_should(
    deletes: Deletes,
    point: str,
    spark: SparkSession,
    tmp_path: Path,
    duckdb_reader: DuckDbReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upsert_stream.land(tmp_path)
    done = run_driver(DRIVER, tmp_path, point, deletes.text, home=tmp_path / "driver", check=False)
    assert done.returncode == -9, done.stderr[-3000:]
    committed = CRASHING_CHECKPOINT + (point == SWAPPED)
    assert len(load_table(str(tmp_path / "table")).snapshots) == committed
    check_table_of(tmp_path, committed)
    left = written_files(tmp_path)

    indexed = _recorded_index_calls(monkeypatch)
    sink = upsert_stream.run(spark, tmp_path, deletes)
    assert indexed == [], "the index is read, and no data file is"
    assert sink.receipts[0].checkpoint_id == CRASHING_CHECKPOINT
    assert sink.receipts[0].outcome == _outcome(point)
    check_table_of(tmp_path, upsert_stream.FILES)
    orphans = written_files(tmp_path) - referenced_files(tmp_path)
    assert orphans <= left, "only the dead leave files that nothing refers to"
    if point in BEFORE_STAGING:
        assert orphans
    if point in (STAGED, SWAPPING, SWAPPED):
        assert not orphans

    upsert_stream.land(tmp_path, first=upsert_stream.FILES, files=1)
    upsert_stream.run(spark, tmp_path, deletes)
    assert indexed == []
    rows = check_table_of(tmp_path, upsert_stream.FILES + 1)
    assert written_files(tmp_path) - referenced_files(tmp_path) == orphans
    # DuckDB fails on equality deletes with a partition column of another type than the other key column.
    if deletes != EQUALITY:
        found = duckdb_reader.read(tmp_path / "table").select(["id", "part", "payload"]).to_pylist()
        assert sorted(row["id"] for row in found) == sorted(rows)
        assert {row["id"]: (row["part"], row["payload"]) for row in found} == rows
    contents = {entry.data_file.content for entry in live_entries(open_table(str(tmp_path / "table")))}
    assert (FileContent.EQUALITY_DELETES in contents) == (deletes == EQUALITY)


def _outcome(point: str) -> Outcome:
    if point == SWAPPED:
        return Outcome.SKIPPED
    return Outcome.RECOVERED if point in (STAGED, SWAPPING) else Outcome.COMMITTED


def _recorded_index_calls(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Any]]:
    calls: list[Sequence[Any]] = []
    index = IndexedRows.index

    def recorded(rows: IndexedRows, session: Any, tasks: Sequence[Any]) -> Any:
        calls.append(tasks)
        return index(rows, session, tasks)

    monkeypatch.setattr(IndexedRows, "index", recorded)
    return calls
