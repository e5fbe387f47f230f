"""Which groups of a plan a run beside a stream rewrites: tiers of sizes, and a budget."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from streamlake.maintain.compact.chosen_groups import tiered, within
from streamlake.maintain.compact.compact_options import CompactOptions, CompactSettings
from streamlake.maintain.compact.compaction import rewrite_data_files
from streamlake.maintain.compact.file_groups import FileGroup
from streamlake.read.planning import FileScanTask
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED
from streamlake.table.table import Table
from tests.helpers.batch_write import append
from tests.helpers.tables import make_table


def options(table: Table, **given: object) -> CompactOptions:
    named = {name.replace("_", "-"): value for name, value in given.items()}
    return CompactOptions.parse(named, table.metadata)


def group(*sizes: int, deleted: tuple[int, ...] = ()) -> FileGroup:
    """A group of data files of these sizes; those of the numbers `deleted` have lost half of their rows."""
    tasks = []
    for number, size in enumerate(sizes):
        path = f"/t/data/{number}.parquet"
        file = DataFile(FileContent.DATA, path, "parquet", 0, (), 100, size)
        gone = DataFile(
            FileContent.POSITION_DELETES, f"{path}.puffin", "puffin", 0, (), 50, 10, referenced_data_file=path
        )
        deletes = (gone,) if number in deleted else ()
        tasks.append(FileScanTask(file, UNPARTITIONED, TRUE, 1, deletes))
    return FileGroup(0, tuple(tasks), 1, 0)


def sizes(groups: list[FileGroup]) -> list[list[int]]:
    return [[file.file_size_in_bytes for file in each.files] for each in groups]


def test_a_file_waits_for_as_much_of_smaller_ones(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    known = options(table, min_input_files=3)
    for given, wanted in (
        ((100, 1, 1, 1), [[1, 1, 1]]),
        ((1, 3, 100, 1, 1), [[1, 3, 1, 1]]),
        ((4, 1, 1, 1), [[1, 1, 1]]),
        ((3, 1, 1, 1), [[3, 1, 1, 1]]),
        ((100, 50, 2, 1), []),
        ((100, 50, 50, 1), [[100, 50, 50, 1]]),
        ((1, 1), []),
    ):
        assert sizes(list(tiered([group(*given)], known))) == wanted, given


def test_files_with_many_deletes_are_rewritten_in_any_case(tmp_path: Path) -> None:
    known = options(make_table(tmp_path / "t"), min_input_files=3)
    assert sizes(list(tiered([group(100, 1, deleted=(0,))], known))) == [[100]]
    assert sizes(list(tiered([group(100, 90, 1, 1, 1, deleted=(0,))], known))) == [[100, 1, 1, 1]]


def test_a_budget_has_at_least_one_group() -> None:
    groups = [group(5), group(3), group(4)]
    assert [len(within(groups, size)) for size in (1, 5, 8, 11, 12, 99)] == [1, 1, 2, 2, 3, 3]
    assert within([], 5) == []


def test_a_row_is_written_again_about_as_often_as_the_table_doubles(tmp_path: Path) -> None:
    """Each run of a stream without an end: some files of each order of magnitude, and few bytes in all."""
    table = make_table(tmp_path / "t", "id long, category string")
    settings = CompactSettings(options={"min-input-files": 4}, in_tiers=True)
    written, most = 0, 0
    runs = 32
    for number in range(4 * runs):
        ids = range(500 * number, 500 * (number + 1))
        rows = pa.table({"id": pa.array(ids), "category": [os.urandom(20).hex() for _ in ids]})
        append(table, rows)
        if number % 4 == 3:
            written += rewrite_data_files(table, settings).added.rows
            head = table.refresh().current_snapshot
            assert head is not None
            most = max(most, int(head.summary["total-data-files"]))
    total = 500 * 4 * runs
    assert written <= 6 * total, "each row about log2(32) times, not 16"
    assert most <= 12
