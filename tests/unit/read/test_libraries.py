"""Scans as data frames of other libraries."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from streamlake.errors import InvalidOptionError
from streamlake.tables import create_table
from tests.unit.read.written_tables import append


@pytest.fixture
def table(tmp_path):
    table = create_table(tmp_path / "t", "id long, token uuid, at timestamp, st struct<x:int>")
    append(
        table,
        pa.table(
            {
                "id": [1, 2],
                "token": pa.ExtensionArray.from_storage(
                    pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))
                ),
                "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
                "st": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
            }
        ),
    )
    return table


def test_to_polars(table):
    polars = pytest.importorskip("polars")
    frame = table.scan("id = 1").to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame["id"].to_list() == [1]
    assert frame.columns == ["id", "token", "at", "st"]
    assert table.scan("id = 3").to_polars().shape == (0, 4)


def test_to_duckdb(table):
    duckdb = pytest.importorskip("duckdb")
    relation = table.scan(columns=["id", "st"]).to_duckdb()
    assert sorted(relation.fetchall()) == [(1, {"x": 1}), (2, None)]
    with duckdb.connect() as connection:
        numbers = table.scan().to_duckdb(connection)
        numbers.create_view("numbers")
        assert connection.sql("select sum(id) from numbers").fetchall() == [(3,)]


@pytest.mark.parametrize(("name", "install"), [("polars", r"streamlake\[fast\]"), ("duckdb", "duckdb")])
def test_a_library_that_is_missing_is_named(table, name, install, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        InvalidOptionError, match=rf"to_{name}\(\) needs the package {name}.*pip install '{install}'"
    ):
        getattr(table.scan(), f"to_{name}")()
