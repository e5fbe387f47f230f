"""The parts of a compaction: which files are chosen, where rows are afterwards, rows sorted outside of memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake.errors import StorageError
from streamlake.maintain.compact.compact_options import CompactOptions
from streamlake.maintain.compact.file_groups import planned_groups
from streamlake.maintain.compact.position_map import MovesRecorder
from streamlake.maintain.compact.sorted_rows import sorted_rows
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.write.rows.sort import RowSorter
from tests.helpers.tables import data_file, delete_file, make_table

MIB = 1024 * 1024


def planned(table: Table, **given: Any) -> list[list[int]]:
    """The sizes (MiB) of the files of each group."""
    options = CompactOptions.parse(
        {name.replace("_", "-"): value for name, value in given.items()}, table.metadata
    )
    snapshot = table.refresh().current_snapshot
    assert snapshot is not None
    groups = planned_groups(table, snapshot, TRUE, options)
    return [[file.file_size_in_bytes // MIB for file in group.files] for group in groups]


def table_of(tmp_path: Path, *sizes: int, deletes: dict[int, tuple[int, ...]] | None = None) -> Table:
    """A table of files of these sizes (MiB) with 100 rows each; `deletes`: records of delete files by file."""
    table = make_table(tmp_path / "t")
    delta = RowDelta(table)
    for at, size in enumerate(sizes):
        file = data_file(table, records=100, size=size * MIB, name=f"f{at}")
        delta.add_rows(file)
        for number, records in enumerate((deletes or {}).get(at, ())):
            delta.add_deletes(delete_file(table, file, f"d{at}-{number}", records=records))
    delta.commit()
    return table


@pytest.mark.parametrize(
    ("sizes", "given", "expected"),
    [
        ((1, 2, 3, 4), {}, []),  # fewer than five, and together less than the target
        ((1, 2, 3, 4, 5), {}, [[1, 2, 3, 4, 5]]),
        ((300, 300), {}, [[300, 300]]),  # more than the target
        ((100, 400, 900, 1000), {}, [[100, 1000]]),  # 384 to 921 MiB are of the right size
        ((1000,), {}, [[1000]]),
        ((380,), {}, []),
        ((1, 400, 2), {"min_input_files": 2}, [[1, 2]]),
        ((1, 400, 2), {"rewrite_all": True}, [[1, 400, 2]]),
        ((400,), {"rewrite_all": True}, [[400]]),
        ((1, 1, 1, 1, 1, 1), {"max_file_group_size_bytes": 2 * MIB, "min_input_files": 2}, [[1, 1]] * 3),
        ((1, 1, 1, 1, 1, 1, 1), {"max_file_group_input_files": 5}, [[1] * 5]),
        ((1, 1, 1, 1, 1, 1), {"max_files_to_rewrite": 3}, [[1, 1, 1]]),
        (
            (1, 2, 3),
            {"min_file_size_bytes": 2 * MIB, "min_input_files": 1},
            [],
        ),  # one file alone gains nothing
        ((1, 1, 3), {"min_file_size_bytes": 2 * MIB, "min_input_files": 2}, [[1, 1]]),
    ],
)
def test_files_are_chosen_as_icebergs_planner_does(
    tmp_path: Path, sizes: tuple[int, ...], given: dict[str, Any], expected: list[list[int]]
) -> None:
    assert planned(table_of(tmp_path, *sizes), **given) == expected


@pytest.mark.parametrize(
    ("deletes", "given", "expected"),
    [
        ({0: (29,)}, {}, []),
        ({0: (30,)}, {}, [[400]]),
        ({0: (20, 20)}, {}, [[400]]),
        ({0: (5,)}, {"delete_ratio_threshold": 0.05}, [[400]]),
        ({0: (1, 1), 1: (1,)}, {"delete_file_threshold": 2}, [[400]]),
        ({0: (1, 1), 1: (1,)}, {"delete_file_threshold": 1}, [[400, 410]]),
        ({}, {"delete_file_threshold": 0}, [[400, 410]]),
    ],
)
def test_files_with_many_deletes_are_chosen(
    tmp_path: Path, deletes: dict[int, tuple[int, ...]], given: dict[str, Any], expected: list[list[int]]
) -> None:
    assert planned(table_of(tmp_path, 400, 410, deletes=deletes), **given) == expected


def test_the_order_of_groups(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", partition_by=("category",))
    delta = RowDelta(table)
    for category, sizes in {"a": (5, 5), "b": (1, 1, 1), "c": (20,)}.items():
        for at, size in enumerate(sizes):
            delta.add_rows(data_file(table, category, size=size * MIB, name=f"{category}{at}"))
    delta.commit()

    def firsts(order: str) -> list[int]:
        return [group[0] for group in planned(table, rewrite_all="true", rewrite_job_order=order)]

    assert firsts("bytes-asc") == [1, 5, 20]
    assert firsts("bytes-desc") == [20, 5, 1]
    assert firsts("files-asc") == [20, 5, 1]
    assert firsts("files-desc") == [1, 5, 20]
    assert sorted(firsts("none")) == [1, 5, 20]


@pytest.mark.parametrize(
    ("size", "files"),
    [(1, 1), (511, 1), (512, 1), (520, 1), (560, 1), (570, 2), (1024, 2), (1100, 2), (1000, 2), (1540, 3)],
)
def test_how_many_files_a_group_becomes(tmp_path: Path, size: int, files: int) -> None:
    options = CompactOptions.parse({}, make_table(tmp_path / "t").metadata)
    assert options.output_files(size * MIB) == files


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ordered", [True, False])
def test_the_position_map_finds_every_row(seed: int, ordered: bool) -> None:
    chance = np.random.default_rng(seed)
    recorder = MovesRecorder()
    sizes = chance.integers(1, 400, 5)
    live = [np.flatnonzero(chance.random(size) < chance.random()) for size in sizes]
    numbers = np.repeat(np.arange(5), [len(each) for each in live])
    old = np.concatenate(live)
    if not ordered:
        shuffled = chance.permutation(len(old))
        numbers, old = numbers[shuffled], old[shuffled]
    files = np.sort(chance.integers(0, 3, len(old)))
    new = np.concatenate([np.arange((files == each).sum()) for each in range(3)]).astype(np.int64)
    for start in range(0, len(old), 64):
        part = slice(start, start + 64)
        recorder.add_mixed(numbers[part], old[part], files[part], new[part])
    found = recorder.map([f"old-{each}" for each in range(5)], ["a", "b", "c"])
    places = {
        (number, at): ("abc"[file], place)
        for number, at, file, place in zip(
            numbers.tolist(), old.tolist(), files.tolist(), new.tolist(), strict=True
        )
    }
    for number, size in enumerate(sizes.tolist()):
        asked = chance.permutation(size)
        carried = found.carried(f"old-{number}", asked)
        expected: dict[str, list[int]] = {}
        for at in asked.tolist():
            if (number, at) in places:
                path, place = places[number, at]
                expected.setdefault(path, []).append(place)
        assert {path: part.tolist() for path, part in carried.items()} == {
            path: sorted(part) for path, part in expected.items()
        }
        everything = found.all_of(f"old-{number}")
        assert {path: part.tolist() for path, part in everything.items()} == {
            path: sorted(part) for path, part in expected.items()
        }
        assert found.moves[f"old-{number}"].row_count == len(live[number])


def test_a_map_of_rows_in_order_is_small() -> None:
    recorder = MovesRecorder()
    for start in range(0, 1_000_000, 50_000):
        rows = np.arange(start, start + 50_000)
        recorder.add(0, rows, np.zeros(50_000, np.int32), rows)
    assert len(recorder.map(["old"], ["new"]).moves["old"].old) == 20


@pytest.mark.parametrize(
    "terms", [["a"], ["a desc nulls last", "b"], ["b", "a desc nulls first"], ["bucket(3, b)"]]
)
@pytest.mark.parametrize("parts", [1, 3, 60])
def test_rows_are_sorted_outside_of_memory(terms: list[str], parts: int) -> None:
    chance = random.Random(parts)
    schema = parse_ddl("a long, b string")
    rows = pa.table(
        {
            "a": pa.array([chance.choice([None, *range(20)]) for _ in range(6_000)], pa.int64()),
            "b": pa.array([chance.choice("xyz") for _ in range(6_000)]),
            "at": pa.array(range(6_000)),
        }
    )
    sorter = RowSorter(schema, parse_sort_by(terms, schema))
    tables = [pa.Table.from_batches([batch]) for batch in rows.to_batches(max_chunksize=25)]
    found = list(sorted_rows(tables, sorter, part_bytes=rows.nbytes // parts + 1, block_bytes=400))
    assert pa.concat_tables(found).to_pylist() == sorter.sort(rows).to_pylist()
    assert max(each.num_rows for each in found) < 100
    assert list(sorted_rows([], sorter)) == []


def test_no_space_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse_ddl("a long")
    sorter = RowSorter(schema, parse_sort_by(["a"], schema))
    rows = pa.table({"a": pa.array(range(1000))})

    def full(*given: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with pytest.raises(StorageError, match=r"No space left on device.*TMPDIR"):
        list(sorted_rows([rows, rows], sorter, part_bytes=100))
