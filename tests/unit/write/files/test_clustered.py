"""Clustered input: one open file at a time, and an error when a partition returns."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from tests.unit.write.targets import make_target, paths_under, read, write

DDL = "id long, category string"


def rows_of(categories: str, times: int = 50) -> list[dict[str, object]]:
    return [
        {"id": at, "category": category}
        for at, category in enumerate(c for c in categories for _ in range(times))
    ]


def test_partitions_are_written_one_after_the_other(tmp_path: Path) -> None:
    target = make_target(tmp_path, DDL, partition_by=["category"], input_order="clustered")
    result = write(target, rows_of("bac"), batch_rows=7)
    assert [file.partition for file in result.data_files] == [("b",), ("a",), ("c",)]
    assert [read(file)["id"].to_pylist() for file in result.data_files] == [
        list(range(50)), list(range(50, 100)), list(range(100, 150)),
    ]  # fmt: skip


def test_a_partition_that_returns_is_an_error(tmp_path: Path) -> None:
    target = make_target(tmp_path, DDL, partition_by=["category"], input_order="clustered")
    with pytest.raises(SchemaMismatchError, match=r"partition category=a returned.*input_order='fanout'"):
        write(target, rows_of("aba"))
    assert paths_under(tmp_path) == []


def test_clustered_files_roll(tmp_path: Path) -> None:
    properties = {"write.target-file-size-bytes": "10000"}
    target = make_target(tmp_path, partition_by=["category"], input_order="clustered", properties=properties)
    rng = random.Random(1)
    result = write(target, [{**row, "amount": rng.random(), "ts": None} for row in rows_of("ab", 5_000)])
    assert len(result.data_files) > 4
    assert result.counters["partitions"] == 2
    assert result.rows == 10_000


def test_an_unknown_input_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="input_order is 'sorted'"):
        make_target(tmp_path, DDL, input_order="sorted")
