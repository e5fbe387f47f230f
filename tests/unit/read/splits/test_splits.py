"""Splits: cut at row groups, packed as Iceberg does, and every row in exactly one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.read.planning import FileScanTask
from streamlake.read.splits.bin_packing import packed
from streamlake.read.splits.data_file_parts import file_parts
from streamlake.read.splits.numbered_files import SnapshotFiles
from streamlake.read.splits.scan_split import ScanSplit, combined
from streamlake.read.splits.split_scan import SplitScan
from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED
from streamlake.tables import create_table
from tests.helpers.row_deltas import row_delta
from tests.unit.read.written_tables import append


def pack(items, target, lookback=1 << 30):
    return list(packed(items, target, lookback, lambda item: item))


# Cases of Iceberg's TestBinPacking.
@pytest.mark.parametrize(
    ("items", "target", "lookback", "bins"),
    [
        ([1, 2, 3, 4, 5], 3, 99, [[1, 2], [3], [4], [5]]),
        ([1, 2, 3, 4, 5], 5, 99, [[1, 2], [3], [4], [5]]),
        ([1, 2, 3, 4, 5], 6, 99, [[1, 2, 3], [4], [5]]),
        ([5, 1, 5, 1, 5, 1], 8, 99, [[5, 1, 1, 1], [5], [5]]),
        ([36, 36, 36, 36, 65, 65, 128], 128, 2, [[36, 36, 36], [128], [36, 65], [65]]),
        ([64, 64, 128, 32, 32, 32, 32], 128, 1, [[64, 64], [128], [32, 32, 32, 32]]),
        ([], 3, 99, []),
    ],
)
def test_packing(items, target, lookback, bins):
    assert pack(items, target, lookback) == bins


@given(st.lists(st.integers(0, 20)), st.integers(1, 30), st.integers(1, 5))
def test_packing_loses_nothing(items, target, lookback):
    found = pack(items, target, lookback)
    assert sorted(each for bin_ in found for each in bin_) == sorted(items)
    assert all(sum(bin_) <= target or len(bin_) == 1 for bin_ in found)


def task_of(size, offsets=None, rows=100, file_format="parquet"):
    file = DataFile(FileContent.DATA, "f", file_format, 0, (), rows, size, split_offsets=offsets)
    return FileScanTask(file, UNPARTITIONED, TRUE, 1)


@pytest.mark.parametrize(
    ("size", "offsets", "split_size", "starts"),
    [
        (1000, (4, 500, 800), 10_000, [4, 500, 800]),
        (1000, (4, 500, 800), 10, [4, 500, 800]),
        (1000, (4,), 10, [4]),
        (1000, None, 400, [0, 400, 800]),
        (1000, None, 1000, [0]),
        (1000, (), 600, [0, 600]),
        # What is not ascending is not believed.
        (1000, (500, 4), 600, [0, 600]),
        (1000, (4, 4), 600, [0, 600]),
        # Nor is what lies beyond the end.
        (1000, (4, 500, 2000), 600, [4, 500]),
        (0, None, 10, [0]),
    ],
)
def test_parts_of_a_file(size, offsets, split_size, starts):
    parts = list(file_parts(task_of(size, offsets), split_size))
    assert [part.start for part in parts] == starts
    assert [part.stop for part in parts] == [*starts[1:], size]
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert sum(part.rows for part in parts) == 100
    assert parts[0].is_whole == (len(parts) == 1)
    # To a reader they are the whole file, wherever metadata lets it begin and end.
    if len(parts) > 1:
        assert parts[0].split == (0, parts[0].stop)
        assert [part.split[0] for part in parts[1:]] == starts[1:]


def test_avro_files_are_read_whole():
    [part] = file_parts(task_of(1000, (4, 500), file_format="avro"), 10)
    assert part.is_whole
    assert part.split is None


def test_neighbours_are_joined_again():
    parts = list(file_parts(task_of(1000, (4, 300, 600)), 10))
    [split] = combined(parts, 10_000, 10, 0)
    assert [part.is_whole for part in split.parts] == [True]
    assert split.rows == 100
    assert split.size == 996
    two = list(combined(parts, 700, 10, 0))
    assert [[(part.start, part.stop) for part in split.parts] for split in two] == [[(4, 600)], [(600, 1000)]]


def test_a_file_counts_for_what_opening_it_costs():
    files = [part for _ in range(10) for part in file_parts(task_of(10), 1000)]
    assert [len(split.parts) for split in combined(files, 100, 10, 40)] == [2] * 5
    assert [len(split.parts) for split in combined(files, 100, 10, 0)] == [10]


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


def files_of(table, snapshot, **more):
    return SnapshotFiles(
        table.table.io, table.specs, table.table.manifests(snapshot), more.pop("bound", TRUE), **more
    )


ROW_GROUPS = {"write.parquet.row-group-size-bytes": "1"}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("deletes", [False, True])
def test_every_row_is_in_one_split(table, file_format, deletes):
    rows = [{"id": number, "category": "ab"[number % 2]} for number in range(12)]
    append(table, rows, **ROW_GROUPS, **{"write.format.default": file_format})
    expected = set(range(12))
    if deletes:
        row_delta(table.table, {0, 3}).commit()
        table.refresh()
        expected -= {0, 3}
    scan = SplitScan.of_table(table.metadata, table.table.io, table.schema, ["id", "_pos", "_file"])
    tasks = [each.task for each in files_of(table, table.current_snapshot, added_by=None).since(0)]
    assert len(tasks) == 2
    parts = [part for task in tasks for part in file_parts(task, 100)]
    assert (len(parts) > 4) == (file_format != "avro")
    found = [
        (row["id"], row["_file"], row["_pos"])
        for part in parts
        for batch in scan.read(ScanSplit((part,)))
        for row in batch.to_pylist()
    ]
    assert sorted(row[0] for row in found) == sorted(expected)
    whole = table.scan(columns=["id", "_file", "_pos"]).to_arrow().to_pylist()
    assert sorted(found) == sorted((row["id"], row["_file"], row["_pos"]) for row in whole)


def test_numbers_count_what_the_filter_leaves_out(table):
    for start in range(0, 6, 2):
        append(table, [{"id": number, "category": "ab"[number % 2]} for number in (start, start + 1)])
    head = table.current_snapshot
    everything = {
        each.task.data_file.file_path: each.number for each in files_of(table, head, added_by=None).since(0)
    }
    assert sorted(everything.values()) == list(range(6))
    for text in ("id >= 4", "category = 'b'", "id = 2 and category = 'a'"):
        bound = bind(text, table.schema)
        for first in range(7):
            found = files_of(table, head, added_by=None, bound=bound).since(first)
            numbers = {each.task.data_file.file_path: each.number for each in found}
            assert numbers.items() <= everything.items()
            assert all(number >= first for number in numbers.values())
    last = [each.number for each in files_of(table, head, added_by=head.snapshot_id).since(0)]
    assert last == [0, 1]
