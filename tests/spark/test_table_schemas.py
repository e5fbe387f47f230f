"""The source table's schema changes under a stream: columns are known by their ids, and nothing is silent."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamlake import UpdateSchema, load_table
from streamlake.errors import SchemaMismatchError
from tests.helpers.batch_write import append
from tests.helpers.table_copy import TableCopy

DDL = "id long, n int, name string"


@pytest.fixture
def copy(spark: SparkSession, tmp_path: Path) -> TableCopy:
    return TableCopy(tmp_path, DDL)


def add(copy: TableCopy, **values: object) -> None:
    """One row."""
    table = copy.source_table.refresh()
    types = {"id": pa.int64(), "n": pa.int32(), "name": pa.string(), "label": pa.string(), "x": pa.int64()}
    if str(table.schema.find("n").type) == "long":
        types["n"] = pa.int64()
    row = pa.table({name: pa.array([value], types[name]) for name, value in values.items()})
    append(table.table, row)


def rows_of(copy: TableCopy) -> list[dict[str, object]]:
    return sorted(load_table(copy.location).scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_a_target_that_does_not_follow(copy: TableCopy, caplog: pytest.LogCaptureFixture) -> None:
    add(copy, id=1, n=1, name="a")
    copy.run()
    UpdateSchema(copy.source_table.table).add_column("x", "long").rename("name", "label").commit()
    add(copy, id=2, n=2, label="b", x=7)
    with caplog.at_level(logging.WARNING):
        copy.run(filter="name is not null")
    assert "has got the columns x since the stream" in caplog.text
    assert rows_of(copy) == [{"id": 1, "n": 1, "name": "a"}, {"id": 2, "n": 2, "name": "b"}]
    UpdateSchema(copy.source_table.refresh().table).widen("n", "long").delete("label").commit()
    add(copy, id=3, n=3)
    copy.run()
    assert rows_of(copy)[2] == {"id": 3, "n": 3, "name": None}
    add(copy, id=4, n=1 << 40)
    with pytest.raises(SchemaMismatchError, match="column 'n'"):
        copy.run()
    UpdateSchema(load_table(copy.location).table).widen("n", "long").commit()
    copy.run()
    assert rows_of(copy)[3] == {"id": 4, "n": 1 << 40, "name": None}


def test_a_target_that_follows(copy: TableCopy) -> None:
    add(copy, id=1, n=1, name="a")
    copy.run(copy.sink(schema_evolution="full"))
    update = UpdateSchema(copy.source_table.table).add_column("x", "long").widen("n", "long")
    update.rename("name", "label").commit()
    add(copy, id=2, n=1 << 40, label="b", x=7)
    with pytest.raises(SchemaMismatchError, match=r"rename_columns=\{'name': 'label'\}"):
        copy.run(copy.sink(schema_evolution="full"))
    copy.run(copy.sink(schema_evolution="full", rename_columns={"name": "label"}))
    assert rows_of(copy) == [
        {"id": 1, "n": 1, "label": "a", "x": None},
        {"id": 2, "n": 1 << 40, "label": "b", "x": 7},
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_a_new_column_with_a_default(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """Rows that are in both tables already have the default in the source, so they have it in the target."""
    copy = TableCopy(tmp_path, DDL, format_version=3)
    add(copy, id=1, n=1, name="a")
    copy.run(copy.sink(format_version=version))
    UpdateSchema(copy.source_table.table).add_column("x", "long", default=7).commit()
    add(copy, id=2, n=2, name="b", x=8)
    with caplog.at_level(logging.WARNING):
        copy.run(copy.sink(schema_evolution="add"))
    assert [row["x"] for row in rows_of(copy)] == [7 if version == 3 else None, 8]
    assert ("the column x, which is 7 in older rows" in caplog.text) == (version == 2)
