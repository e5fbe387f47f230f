"""Streams of the format "streamlake" as Spark 4.2 and later drive them: with a start, a limit, and an end."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from streamlake.pipeline.iceberg.frames import frame_stream
from streamlake.pipeline.spark.admission_control import ADMISSION_MODULE, HAS_ADMISSION_CONTROL
from streamlake.tables import create_table
from tests.unit.pipeline.iceberg.frames.spark_stand_in import Query
from tests.unit.pipeline.iceberg.table_streams import add, overwrite


@dataclass
class ReadAllAvailable:
    """As in pyspark.sql.streaming.datasource."""


@dataclass
class ReadMaxRows:
    """As in pyspark.sql.streaming.datasource."""

    max_rows: int


@pytest.fixture(autouse=True)
def _spark_with_admission(monkeypatch):
    if not HAS_ADMISSION_CONTROL:
        made = ModuleType(ADMISSION_MODULE)
        made.ReadAllAvailable, made.ReadMaxRows = ReadAllAvailable, ReadMaxRows
        monkeypatch.setitem(sys.modules, ADMISSION_MODULE, made)
        monkeypatch.setattr(frame_stream, "HAS_ADMISSION_CONTROL", True)


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


class Admitted(Query):
    """Asks with a start and a limit. `available_now`: the query ends."""

    available_now = False
    everything = False

    def restart(self) -> None:
        super().restart()
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    def latest(self) -> dict[str, Any]:
        limit = ReadAllAvailable() if self.everything else self.reader.getDefaultReadLimit()
        start = json.loads(self.log[-1]) if self.log else self.reader.initialOffset()
        return self.reader.latestOffset(start, limit)

    def ends_at(self) -> list[list[int]]:
        """The micro-batches up to the end."""
        found = []
        while (batch := self.trigger()) is not None:
            found.append(batch)
        return found


def test_limits_cut_the_first_scan_and_appends(table):
    for number in range(5):
        add(table, number)
    query = Admitted(table, max_files_per_trigger=2)
    assert [len(batch) for batch in query.ends_at()] == [2, 2, 1]
    for number in range(5, 8):
        add(table, number)
    query.restart()
    assert [len(batch) for batch in query.ends_at()] == [2, 1]
    assert sorted(each for batch in query.batches for each in batch) == list(range(8))


def test_a_restart_in_the_middle_of_a_snapshot(table):
    add(table, *range(6))
    query = Admitted(table, max_files_per_trigger=1)
    first = query.trigger()
    # The second micro-batch is in the log, and not done.
    query.log.append(json.dumps(query.latest()))
    add(table, 6)
    query.restart()
    second = query.run()
    assert sorted(first + second) == list(range(6))
    assert query.ends_at() == [[6]]


def test_snapshots_are_counted(table):
    ids = [add(table, number) for number in range(4)]
    query = Admitted(table, max_planning_snapshot_count=1, start_snapshot_id=ids[1])
    assert query.ends_at() == [[1], [2], [3]]


def test_a_trigger_that_wants_everything(table):
    for number in range(5):
        add(table, number)
    query = Admitted(table, max_files_per_trigger=1)
    query.everything = True
    assert query.ends_at() == [[0, 1, 2, 3, 4]]


def test_available_now_ends_where_the_table_was(table):
    for number in range(3):
        add(table, number)
    query = Admitted(table, max_files_per_trigger=1)
    query.available_now = True
    query.restart()
    assert len(query.trigger()) == 1
    add(table, 9)
    assert sum(len(batch) for batch in query.ends_at()) == 2
    query.restart()
    assert query.ends_at() == [[9]]


def test_available_now_on_an_empty_table(table):
    query = Admitted(table)
    query.available_now = True
    query.restart()
    add(table, 1)
    assert query.ends_at() == []
    query.restart()
    assert query.ends_at() == [[1]]


def test_what_comes_before_deleted_rows_is_read_first(table):
    add(table, 0)
    query = Admitted(table)
    assert query.ends_at() == [[0]]
    add(table, 1)
    overwrite(table, "category = 'a'", 8)
    assert query.trigger() == [1]
    with pytest.raises(Exception, match="on-delete"):
        query.trigger()


def test_the_limit_that_spark_is_told(table):
    assert type(Admitted(table).reader.getDefaultReadLimit()).__name__ == "ReadAllAvailable"
    assert Admitted(table, max_rows_per_trigger=7).reader.getDefaultReadLimit().max_rows == 7
    assert Admitted(table, max_files_per_trigger=7).reader.getDefaultReadLimit().max_rows > 1 << 60
