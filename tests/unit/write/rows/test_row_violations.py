"""Rows that do not fit the table: each of them is told, and the others pass the writers' own check."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from streamlake.errors import SchemaMismatchError
from streamlake.spec.types.ddl import parse_ddl
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.rows.row_violations import ViolationCheck


def misfits(ddl, rows, **arguments):
    """The rows that do not fit; checked against what the writers say of all rows, and of the others."""
    batch = pa.RecordBatch.from_pydict(rows) if isinstance(rows, dict) else rows
    schema = parse_ddl(ddl)
    found = ViolationCheck(schema, **arguments).find(batch)
    if not arguments:
        kept = [at for at in range(batch.num_rows) if at not in found]
        RowCheck(schema, "t").align(pa.Table.from_batches([batch]).take(kept))
        if found:
            with pytest.raises(SchemaMismatchError):
                RowCheck(schema, "t").align(pa.Table.from_batches([batch]))
    return found


def test_rows_that_fit_are_not_looked_at_one_by_one():
    assert misfits("id long, v string", {"id": pa.array([1, None]), "v": ["a", None]}) == {}


def test_nulls_in_required_columns():
    found = misfits("id long not null, v string not null", {"id": [1, None, 3], "v": [None, "b", "c"]})
    assert found == {
        0: "column 'v': the value is null and the table requires one",
        1: "column 'id': the value is null and the table requires one",
    }


@pytest.mark.parametrize(
    ("ddl", "values", "bad"),
    [
        ("v decimal(4,2)", pa.array([Decimal("1.00"), Decimal("100.00"), None, Decimal("0.50")]), [1]),
        ("v int", pa.array([1, 1 << 40, -(1 << 31), -(1 << 31) - 1], pa.int64()), [1, 3]),
        ("v fixed[2]", pa.array([b"ab", b"abc", None, b"a"], pa.binary()), [1, 3]),
        ("v uuid", pa.array(["x", "6a0b9b4f-27a4-4d8b-9d9c-5a0f1d1c3c11", None], pa.string()), [0]),
        ("v array<int>", pa.array([[1, 2], [1 << 40], None, [], [3, 1 << 50]], pa.list_(pa.int64())), [1, 4]),
    ],
)
def test_values_that_do_not_fit(ddl, values, bad):
    found = misfits(ddl, {"v": values})
    assert sorted(found) == bad
    assert all("column 'v" in reason for reason in found.values())


def test_nulls_inside_of_values():
    values = pa.array(
        [{"a": 1, "b": 2}, {"a": None, "b": 2}, None, {"a": 1, "b": None}, {"a": None, "b": None}],
        pa.struct([("b", pa.int64()), ("a", pa.int64())]),
    )
    found = misfits("v struct<a: long not null, b: long not null>", {"v": values})
    assert {row: reason.split(":")[0] for row, reason in found.items()} == {
        1: "column 'v.a'",
        3: "column 'v.b'",
        4: "column 'v.a'",
    }


def test_thousands_of_misfits_in_thousands_of_rows():
    count = 20_000
    values = [1 << 40 if at % 3 == 0 else at for at in range(count)]
    found = misfits("v int", {"v": pa.array(values, pa.int64())})
    assert sorted(found) == list(range(0, count, 3))


def test_a_row_that_is_taken_out_needs_its_key_and_order_only():
    rows = {
        "id": pa.array([1, None, 3, None], pa.int64()),
        "at": pa.array([1, 2, None, 4], pa.int64()),
        "v": pa.array([None, None, None, None], pa.string()),
    }
    check = ViolationCheck(
        parse_ddl("id long not null, at long, v string not null"), key=["id"], sequence_by=["at"]
    )
    found = check.find(pa.RecordBatch.from_pydict(rows), np.array([True, True, True, False]))
    assert sorted(found) == [1, 2, 3]
    assert "'id'" in found[1]
    assert "`sequence_by`" in found[2]


def test_a_value_that_was_left_out_is_no_null_but_in_the_key():
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, None], pa.int64()), pa.array([None, None, "x"])], names=["id", "v"]
    )
    left_out = {"v": np.array([True, False, False]), "id": np.array([False, False, True])}
    found = ViolationCheck(parse_ddl("id long, v string not null"), key=["id"]).find(batch, missing=left_out)
    assert sorted(found) == [1, 2]
    assert "leaves it out" in found[2]


def test_a_column_of_another_type_is_left_to_the_writer():
    assert ViolationCheck(parse_ddl("v long")).find(pa.RecordBatch.from_pydict({"v": ["a"]})) == {}
