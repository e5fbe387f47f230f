"""An upserted table read as changes and upserted into another one, with no further setting: both are equal."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamlake import IcebergSink, load_table
from streamlake.catalog.open import open_table
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import create_table
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.processes import wait_until
from tests.helpers.row_deltas import row_delta
from tests.helpers.table_copy import CONTINUOUSLY, TableCopy

SCHEMA = replace(parse_ddl("id long not null, name string"), identifier_field_ids=(1,))
CHANGES = pa.schema([("id", pa.int64()), ("name", pa.string()), (ROW_KIND, pa.int8())])


class Chain(TableCopy):
    """A source table that is upserted into, and its copy."""

    def __init__(self, home: Path, delete_mode: str, version: int) -> None:
        super().__init__(home, SCHEMA, format_version=version)
        self.upserts = LocalUpserts(self.source_table.location, key=["id"], delete_mode=delete_mode)
        self.random = random.Random(f"{delete_mode} {version}")

    def source(self, **options: object) -> Any:
        return super().source(**{"read_mode": "changes", **options})

    def upsert(self, checkpoints: int) -> None:
        """Checkpoints of inserts, updates and deletes of few keys."""
        for _ in range(checkpoints):
            rows = [
                {
                    "id": number,
                    "name": f"n{self.random.random()}",
                    ROW_KIND: int(self.random.choice([RowKind.UPDATE_AFTER, RowKind.INSERT, RowKind.DELETE])),
                }
                for number in self.random.sample(range(60), 20)
            ]
            self.upserts.checkpoint(pa.Table.from_pylist(rows, schema=CHANGES))


@pytest.mark.parametrize("mode", ["upsert", "changelog"])
@pytest.mark.parametrize(("delete_mode", "version"), [("position", 2), ("position", 3), ("equality", 2)])
def test_the_copy_of_an_upserted_table_is_equal(
    spark: SparkSession, tmp_path: Path, delete_mode: str, version: int, mode: str
) -> None:
    chain = Chain(tmp_path, delete_mode, version)
    chain.upsert(4)
    chain.run(IcebergSink(chain.location, create=True, mode=mode))
    assert chain.is_equal()
    assert load_table(chain.location).schema.column_names == ["id", "name"]
    chain.upsert(4)
    # A query that ends in the middle, and one that goes on from there.
    sink = IcebergSink(chain.location, create=True, mode=mode)
    query, _ = chain.start(CONTINUOUSLY, sink, max_planning_snapshot_count=1)
    try:
        wait_until(lambda: len(sink.receipts) >= 1, 60, "a commit")
    finally:
        query.stop()
    chain.upsert(2)
    chain.run(IcebergSink(chain.location, create=True, mode=mode))
    assert chain.is_equal()
    check_table(open_table(chain.location), files_exist=True)


def test_net_changes_into_a_table_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Appended to a table with the columns of changes, they are its rows."""
    chain = Chain(tmp_path, "position", 3)
    create_table(
        chain.location,
        "id long, name string, _row_kind string, _snapshot_id long, _sequence_number long, _ordinal int, "
        "_row_id long",
        format_version=3,
    )
    chain.upsert(1)
    chain.run(IcebergSink(chain.location), net_changes=True)
    before = chain.source_table.refresh().current_snapshot.snapshot_id
    chain.upsert(3)
    chain.run(IcebergSink(chain.location), net_changes=True)
    rows = load_table(chain.location).scan("_ordinal > 0").to_arrow().to_pylist()
    net = chain.source_table.refresh().scan_changes(before, net_changes=True).to_arrow().to_pylist()
    known = [{**row, "_ordinal": row["_ordinal"] + 1} for row in net]
    assert sorted(map(str, rows)) == sorted(map(str, known))


class Renumbered(TableCopy):
    """A source whose rows keep `uid`, and a copy whose key is `id`, which updates change."""

    def __init__(self, home: Path, version: int) -> None:
        super().__init__(home, "uid long not null, id long not null, name string", format_version=version)

    def write(self, gone: list[int], *rows: tuple[int, int, str]) -> None:
        """Remove the rows with the ids `gone` and add (uid, id, name), in one snapshot."""
        schema = self.source_table.refresh().schema
        made = [dict(zip(schema.column_names, row, strict=True)) for row in rows]
        table = pa.Table.from_pylist(made, schema=schema_to_arrow(schema))
        row_delta(self.source_table.table, gone, table).commit()

    def follow(self, **options: object) -> None:
        sink = IcebergSink(self.location, create=True, mode="upsert", key=["id"], sequence_by="none")
        self.run(sink, read_mode="changes", identifier_columns="uid", **options)
        assert self.is_equal()


@pytest.mark.parametrize("net", [False, True])
def test_updates_that_change_the_key_of_the_copy(spark: SparkSession, tmp_path: Path, net: bool) -> None:
    copy = Renumbered(tmp_path, 3 if net else 2)
    copy.write([], (1, 5, "a"), (2, 8, "b"), (3, 9, "c"))
    copy.follow(net_changes=net)
    # Row 1 gets another key, its old key is row 4's, and row 1 changes once more; two rows exchange theirs.
    copy.write([5], (1, 6, "a"))
    copy.write([], (4, 5, "d"))
    copy.write([6], (1, 7, "a"))
    copy.write([8, 9], (2, 9, "b"), (3, 8, "c"))
    copy.follow(net_changes=net)


def test_a_copy_of_all_changes_goes_on_when_the_source_gets_row_ids(
    spark: SparkSession, tmp_path: Path
) -> None:
    copy = Renumbered(tmp_path, 2)
    copy.write([], (1, 5, "a"))
    copy.run(IcebergSink(copy.location, create=True), read_mode="changes", identifier_columns="uid")
    UpdateProperties(copy.source_table.refresh().table).upgrade_format_version(3).commit()
    copy.write([5], (1, 5, "b"))
    copy.run(IcebergSink(copy.location, create=True), read_mode="changes", identifier_columns="uid")
    rows = load_table(copy.location).scan(columns=["_row_kind", "name"]).to_arrow().to_pylist()
    assert sorted(map(repr, rows)) == sorted(
        repr({"_row_kind": kind, "name": name}) for kind, name in (("+I", "a"), ("-U", "a"), ("+U", "b"))
    )
