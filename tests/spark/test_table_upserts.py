"""Rows of a table as upserts of another one: by each delete mode, with row kinds, in the order of the snapshots."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamlake import load_table
from streamlake.errors import InvalidOptionError
from tests.helpers.batch_write import append
from tests.helpers.table_copy import TableCopy

CHANGES = "id long not null, v long, op string"


@pytest.fixture
def copy(spark: SparkSession, tmp_path: Path) -> TableCopy:
    return TableCopy(tmp_path, CHANGES)


def change(copy: TableCopy, *rows: tuple[int, int, str]) -> None:
    """One snapshot with these changes."""
    names = ("id", "v", "op")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("op", pa.string())])
    copy.source_table.refresh()
    found = [dict(zip(names, row, strict=True)) for row in rows]
    append(copy.source_table.table, pa.Table.from_pylist(found, schema=schema))


def rows_of(copy: TableCopy) -> dict[int, int]:
    rows = load_table(copy.location).scan(columns=["id", "v"]).to_arrow().to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


@pytest.mark.parametrize("delete_mode", ["position", "equality", "copy-on-write"])
def test_the_last_change_of_a_key_wins(copy: TableCopy, delete_mode: str) -> None:
    change(copy, *((key, 0, "+I") for key in range(40)))
    change(copy, *((key, 1, "+U") for key in range(0, 40, 2)))
    change(copy, (0, 7, "+U"), (1, 0, "-D"), (2, 0, "-D"), (2, 9, "+I"))
    expected = {key: 1 - key % 2 for key in range(40)} | {0: 7, 2: 9}
    del expected[1]

    def run() -> None:
        copy.run(
            copy.sink(mode="upsert", key=["id"], row_kind="op", delete_mode=delete_mode),
            max_planning_snapshot_count=2,
            starting_strategy="incremental-from-earliest-snapshot",
        )
        assert rows_of(copy) == expected

    run()
    change(copy, *((key, 5, "+U") for key in range(10)), (50, 1, "+I"), (50, 0, "-D"), (3, 0, "-D"))
    expected |= dict.fromkeys(range(10), 5)
    del expected[3]
    run()
    assert load_table(copy.location).schema.column_names == ["id", "v"]


def test_the_key_is_that_of_the_source_and_an_older_change_comes_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    copy = TableCopy(tmp_path, CHANGES)
    change(copy, (1, 5, ""), (2, 5, ""))
    with pytest.raises(InvalidOptionError, match="has no identifier fields"):
        copy.run(copy.sink(mode="upsert"))
    from streamlake import UpdateSchema

    UpdateSchema(copy.source_table.table).set_identifier_fields(["id"]).commit()
    copy.run(copy.sink(mode="upsert", sequence_by=["v"]))
    change(copy, (1, 3, ""), (2, 8, ""))
    copy.run(copy.sink(mode="upsert", sequence_by=["v"]))
    assert rows_of(copy) == {1: 5, 2: 8}
    assert load_table(copy.location).schema.identifier_names == ["id"]
