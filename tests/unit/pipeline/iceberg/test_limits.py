"""How a micro-batch is cut: snapshots, files, rows, bytes; and how often the table is asked."""

from __future__ import annotations

from datetime import datetime

import pytest

from streamlake import clock
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.iceberg.table_cursor import TableCursor
from streamlake.read import planning
from streamlake.source.iceberg.iceberg_options import ReadLimits
from streamlake.table.producers.append_files import AppendFiles
from streamlake.tables import create_table
from tests.unit.pipeline.iceberg.table_streams import Stream, add, compact, enumerator_of
from tests.unit.read.written_tables import append, data_files

EARLIEST = {"starting_strategy": "incremental-from-earliest-snapshot"}
ROW_GROUPS = {"write.parquet.row-group-size-bytes": "1", "write.parquet.page-row-limit": "10"}


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string")


def files(table, count):
    """One snapshot of `count` files of ten rows."""
    operation = AppendFiles(table.table)
    for at in range(count):
        for file in data_files(table, [{"id": at * 10 + n, "category": "a"} for n in range(10)]):
            operation.append_file(file)
    operation.commit()
    table.refresh()


def test_at_most_so_many_snapshots(table):
    for number in range(5):
        add(table, number)
    stream = Stream(table, max_planning_snapshot_count=2, **EARLIEST)
    stream.run()
    assert stream.batches == [[0, 1], [2, 3], [4]]


def test_snapshots_that_are_passed_over_count(table):
    """As in Iceberg, where the snapshots of a lineage are counted and not the appends."""
    add(table, 0)
    compact(table)
    add(table, 1)
    stream = Stream(table, max_planning_snapshot_count=2, **EARLIEST)
    stream.run()
    assert stream.batches == [[0], [1]]


@pytest.mark.parametrize("options", [{}, EARLIEST])
@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        ({"max_files_per_trigger": 2}, [20, 20, 10]),
        ({"max_rows_per_trigger": 20}, [20, 20, 10]),
        ({"max_rows_per_trigger": 29}, [20, 20, 10]),
        ({"max_rows_per_trigger": 3}, [10, 10, 10, 10, 10]),
        ({"max_bytes_per_trigger": 1}, [10, 10, 10, 10, 10]),
        ({"max_files_per_trigger": 4, "max_rows_per_trigger": 30}, [30, 20]),
        ({"max_files_per_trigger": 5}, [50]),
        ({"max_files_per_trigger": 50}, [50]),
    ],
)
def test_a_snapshot_is_cut_between_files(table, options, limit, sizes):
    files(table, 5)
    for restarts in (False, True):
        stream = Stream(table, **options, **limit)
        while stream.step() is not None:
            if restarts:
                stream.restart()
        assert [len(batch) for batch in stream.batches] == sizes
        assert stream.all() == list(range(50))


def test_a_batch_goes_over_the_edges_of_snapshots(table):
    for _ in range(2):
        files(table, 3)
    stream = Stream(table, max_files_per_trigger=4, **EARLIEST)
    stream.run()
    assert [len(batch) for batch in stream.batches] == [40, 20]


def test_a_file_is_cut_between_row_groups(table):
    rows = [{"id": number, "category": "a"} for number in range(5)]
    append(table, rows, **ROW_GROUPS)
    [task] = table.scan().plan_files()
    groups = len(task.data_file.split_offsets)
    assert groups > 2
    for options in ({}, EARLIEST):
        stream = Stream(table, max_bytes_per_trigger=1, **options)
        while stream.step() is not None:
            stream.restart()
        assert len(stream.batches) == groups
        assert [each for batch in stream.batches for each in batch] == list(range(5))


def test_positions_do_not_depend_on_the_filter(table):
    files(table, 5)
    stream = Stream(table, max_files_per_trigger=1, filter="id >= 30")
    assert stream.step() == list(range(30, 40))
    assert stream.offset(-1).position.within == (4, 0)
    # The filter may change in the middle of a snapshot.
    stream.restart(filter="id < 5 or id >= 45")
    assert stream.run() == list(range(45, 50))


def test_limits_of_one_call_take_the_place_of_the_options(table):
    files(table, 3)
    cursor = TableCursor(enumerator_of(table))
    assert cursor.latest(ReadLimits(files=1)).position.within == (1, 0)
    assert cursor.latest().position.within is None


def test_the_order_of_a_half_read_snapshot_stays(table):
    """Another split size or order holds from the next snapshot on: positions mean the same until then."""
    table = create_table(f"{table.location}2", "id long, category string")
    for _ in range(2):
        files(table, 4)
    stream = Stream(table, max_files_per_trigger=1, **EARLIEST)
    assert stream.step() == list(range(10))
    stream.restart(watermark_column="id", split_size=100, max_files_per_trigger=8)
    assert stream.step() == list(range(10, 40))
    assert stream.offset(-1).planning.order_by is None
    assert stream.step() == list(range(40))
    assert stream.offset(-1).planning.order_by == 1
    assert stream.offset(-1).planning.split_size == 100


def test_the_table_is_asked_once_per_interval(table, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    add(table, 1)
    stream = Stream(table, monitor_interval="60 s")
    assert stream.run() == [1]
    add(table, 2)
    assert stream.step() is None
    now[0] += 59
    assert stream.step() is None
    now[0] += 1
    assert stream.step() == [2]


def test_an_idle_poll_reads_no_manifest(table, monkeypatch):
    for number in range(3):
        add(table, number)
    stream = Stream(table, max_files_per_trigger=1)
    stream.run()
    monkeypatch.setattr("streamlake.read.planning.read_manifest", None)
    monkeypatch.setattr("streamlake.table.table.snapshot_manifests", None)
    assert stream.step() is None


def test_a_first_scan_is_planned_once(table, monkeypatch):
    for _ in range(4):
        files(table, 3)
    read = []
    original = planning.read_manifest

    def reading(io, manifest, *more, **named):
        read.append(manifest.manifest_path)
        return original(io, manifest, *more, **named)

    monkeypatch.setattr(planning, "read_manifest", reading)
    stream = Stream(table, max_files_per_trigger=1)
    stream.run()
    assert len(stream.batches) == 12
    assert len(read) == 4


@pytest.mark.parametrize("options", [{}, EARLIEST])
def test_files_in_the_order_of_a_column(tmp_path, options):
    table = create_table(tmp_path / "t", "id long, at timestamp")
    operation = AppendFiles(table.table)
    for number in (5, 3, None, 1, 4, 2):
        at = None if number is None else f"2026-01-0{number}T00:00:00"
        moment = None if at is None else datetime.fromisoformat(at)
        for file in data_files(table, [{"id": number or 0, "at": moment}]):
            operation.append_file(file)
    operation.commit()
    stream = Stream(table, watermark_column="at", max_files_per_trigger=2, **options)
    while stream.step() is not None:
        stream.restart()
    assert stream.batches == [[0, 1], [2, 3], [4, 5]]
    assert Stream(
        table, watermark_column="at", filter="id > 2", max_files_per_trigger=1, **options
    ).run() == [3, 4, 5]


def test_a_column_that_does_not_order(tmp_path):
    table = create_table(tmp_path / "t", "id long, name string, s struct<at: timestamp>")
    for column, error in (("name", "is string"), ("s.at", "top-level"), ("idd", "did you mean 'id'")):
        with pytest.raises(InvalidOptionError, match=error):
            Stream(table, watermark_column=column).step()
