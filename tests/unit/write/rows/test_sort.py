"""Sorting: order of values, nulls and floats, and which files carry the sort order's id."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.write.rows.sort import RowSorter
from tests.unit.write.targets import make_target, read, write


def sorted_values(ddl: str, sort_by: list[str], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    schema = parse_ddl(ddl)
    table = pa.Table.from_pylist(rows, schema=schema_to_arrow(schema))
    return RowSorter(schema, parse_sort_by(sort_by, schema)).sort(table).to_pylist()


@pytest.mark.parametrize(
    ("sort_by", "expected"),
    [
        ("x", [None, None, 1, 2, 3]),
        ("x asc nulls last", [1, 2, 3, None, None]),
        ("x desc", [3, 2, 1, None, None]),
        ("x desc nulls first", [None, None, 3, 2, 1]),
    ],
)
def test_directions_and_nulls(sort_by: str, expected: list[int | None]) -> None:
    rows = [{"x": value} for value in (2, None, 3, 1, None)]
    assert [row["x"] for row in sorted_values("x long", [sort_by], rows)] == expected


@pytest.mark.parametrize("ddl", ["x double", "x float"])
def test_floats_in_the_order_of_the_specification(ddl: str) -> None:
    negative_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
    expected = [None, negative_nan, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]
    shuffled = expected[:]
    random.Random(2).shuffle(shuffled)
    found = [row["x"] for row in sorted_values(ddl, ["x"], [{"x": value} for value in shuffled])]
    assert [repr(value) for value in found] == [repr(value) for value in expected]
    assert math.copysign(1, found[1]) == -1
    assert math.copysign(1, found[-1]) == 1


def test_several_keys_with_transforms_are_stable() -> None:
    rng = random.Random(3)
    rows = [
        {
            "n": at,
            "name": rng.choice([None, "b1", "b2", "a1"]),
            "flag": rng.random() < 0.5,
            "s": {"k": rng.randint(0, 2)},
        }
        for at in range(200)
    ]
    found = sorted_values(
        "n long, name string, flag boolean, s struct<k:int>",
        ["truncate(1,name) desc", "flag", "s.k desc"],
        rows,
    )

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        name = row["name"]
        return (name is None, -ord(name[0]) if name else 0, row["flag"], -row["s"]["k"], row["n"])

    assert found == sorted(rows, key=key)


def test_sorted_rows_are_not_copied() -> None:
    schema = parse_ddl("x long")
    table = pa.table({"x": [1, 1, 2]}, schema=schema_to_arrow(schema))
    assert RowSorter(schema, parse_sort_by(["x"], schema)).sort(table) is table
    nulls = pa.table({"x": pa.nulls(3, pa.int64())}, schema=schema_to_arrow(schema))
    assert RowSorter(schema, parse_sort_by(["x"], schema)).sort(nulls) is nulls


def shuffled_rows(count: int) -> list[dict[str, Any]]:
    rows = [{"id": at, "category": f"c{at % 3}", "amount": at**0.5, "ts": None} for at in range(count)]
    random.Random(4).shuffle(rows)
    return rows


@pytest.mark.parametrize(
    ("partition_by", "order"), [((), "fanout"), (("category",), "fanout"), (("category",), "clustered")]
)
def test_a_file_sorted_as_a_whole_carries_the_order_id(
    tmp_path: Path, partition_by: tuple[str, ...], order: str
) -> None:
    target = make_target(tmp_path, partition_by=partition_by, sort_by=["id desc"], input_order=order)
    rows = shuffled_rows(3000)
    if order == "clustered":
        rows.sort(key=lambda row: row["category"])
    result = write(target, rows, batch_rows=100)
    assert result.rows == 3000
    for file in result.data_files:
        found = read(file)["id"].to_pylist()
        assert found == sorted(found, reverse=True)
        assert file.sort_order_id == 1


SMALL = {"streamlake.write.memory-budget-bytes": "1048576"}
WIDE = "id long, payload string"


def wide_rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "payload": ["p" * 200] * len(ids)})


@pytest.mark.parametrize("partition_by", [(), ("truncate(1000000, id)",)])
def test_a_file_of_several_stretches_is_sorted_only_if_they_follow_one_another(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    ids = list(range(20_000))
    upwards = write(
        make_target(tmp_path / "up", WIDE, partition_by=partition_by, sort_by=["id"], properties=SMALL),
        wide_rows(ids),
    )
    assert [file.sort_order_id for file in upwards.data_files] == [1]
    random.Random(5).shuffle(ids)
    mixed = write(
        make_target(tmp_path / "mix", WIDE, partition_by=partition_by, sort_by=["id"], properties=SMALL),
        wide_rows(ids),
    )
    assert [file.sort_order_id for file in mixed.data_files] == [None]
    found = [row for file in mixed.data_files for row in read(file)["id"].to_pylist()]
    assert found != sorted(found)
    assert sorted(found) == list(range(20_000))


def test_rolled_files_of_sorted_rows_are_sorted(tmp_path: Path) -> None:
    properties = {"write.target-file-size-bytes": "100000"}
    result = write(make_target(tmp_path, sort_by=["id"], properties=properties), shuffled_rows(40_000))
    assert len(result.data_files) > 2
    assert {file.sort_order_id for file in result.data_files} == {1}
    assert [row for file in result.data_files for row in read(file)["id"].to_pylist()] == list(range(40_000))
