"""The tasks of a query that reads a table: which columns they hand on, and in what order changes arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from streamlake.errors import DataInvalidError
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.records import ROW_KIND, ROW_ORDER, RowKind
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tasks.intake import KeyRoute
from streamlake.tasks.shuffle_blocks import unpacked
from streamlake.tasks.split_tasks import ChangeOrder, SplitBlocks, SplitReader
from streamlake.tasks.watermarks import Watermarks, merged

CHANGES = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("_row_kind", pa.string()), ("_ordinal", pa.int32())]
)


@dataclass(frozen=True)
class Stub:
    """A reader of changes: each split is a list of rows, or an error."""

    arrow_schema: pa.Schema = CHANGES

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(split, Exception):
            raise split
        yield pa.RecordBatch.from_pylist(
            [dict(zip(self.arrow_schema.names, row, strict=True)) for row in split], schema=self.arrow_schema
        )


def route(buckets: int = 1, kind: str | None = "_row_kind") -> KeyRoute:
    codec = KeyCodec(parse_ddl("id long not null").fields)
    return KeyRoute(0, buckets, ("id",), codec, kind, False, "copy", None)


def applied(blocks: list[pa.RecordBatch]) -> dict[int, str]:
    """The rows that are left when changes are applied in the order of their places."""
    found = []
    for block in unpacked(iter(blocks)):
        for rows in block.batches():
            found += rows.to_pylist()
    table: dict[int, str] = {}
    for row in sorted(found, key=lambda row: row[ROW_ORDER]):
        table.pop(row["id"], None)
        if row[ROW_KIND] in (0, 2):
            table[row["id"]] = row["v"]
    return table


def tasks(splits: list[list[Any]], order: ChangeOrder | None) -> list[pa.RecordBatch]:
    """The blocks of several tasks, in the order of their places in a slot."""
    blocks = []
    for number, own in enumerate(splits):
        reader = SplitReader(Stub(), tuple(CHANGES.names))
        blocks += SplitBlocks(reader, route(), lambda n=number: (n, n, 0), order)(iter(own))
    return sorted(blocks, key=lambda block: block.column("place")[0].as_py())


def test_what_a_snapshot_removed_comes_before_what_it_added_whichever_task_has_read_it() -> None:
    added = [(1, "new", "+I", 4), (2, "b", "+I", 4)]
    removed = [(1, "old", "-D", 4), (3, "c", "-D", 4)]
    before = [(1, "old", "+I", 3), (3, "c", "+I", 3)]
    expected = {1: "new", 2: "b"}
    for splits in ([[before, added], [removed]], [[added], [before], [removed]], [[added, removed, before]]):
        assert applied(tasks(splits, ChangeOrder("_ordinal", 3, False))) == expected


def test_an_update_whose_halves_are_in_one_batch() -> None:
    rows = [(1, "a", "-U", 0), (1, "b", "+U", 0), (2, "x", "-U", 0), (2, "y", "+U", 0), (1, "c", "+U", 1)]
    blocks = tasks([[rows]], ChangeOrder("_ordinal", 0, False))
    assert applied(blocks) == {1: "c", 2: "y"}
    assert all("_ordinal" not in rows.schema.names for b in unpacked(iter(blocks)) for rows in b.batches())


def test_an_error_ends_the_blocks_in_the_place_of_the_rows() -> None:
    blocks = tasks([[[(1, "a", "+I", 0)], DataInvalidError("damaged")]], None)
    *_, last = unpacked(iter(blocks))
    with pytest.raises(DataInvalidError, match="damaged"):
        list(last.batches())


def test_only_the_wanted_columns_are_handed_on_and_the_newest_time_is_found() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    reader = SplitReader(Stub(schema), ("id",), "at", "orders")
    times = Watermarks("at")
    found = list(reader.rows([[(1, 5_000_000), (2, 9_000_000)], [(3, 7_000_000)]], times))
    assert [rows.schema.names for rows in found] == [["id"], ["id"]]
    assert merged([times.taken()]).newest == {"orders": 9_000}


def test_of_net_changes_all_that_is_removed_comes_first() -> None:
    """Row A had the key 1 and has 3 since snapshot 2; row B got the key 1 in snapshot 1."""
    rows = [(1, "a", "-U", 2), (3, "a", "+U", 2), (1, "b", "+I", 1)]
    for splits in ([[rows]], [[rows[:2]], [rows[2:]]], [[rows[2:]], [rows[:2]]]):
        assert applied(tasks(splits, ChangeOrder("_ordinal", 0, False, is_net=True))) == {1: "b", 3: "a"}


def test_the_old_row_of_an_update_that_changes_the_key_is_a_delete() -> None:
    """Of upserts, where the old row of an update is left out because the new one replaces it."""
    rows = [(1, "a", "-U", 0), (2, "a", "+U", 0), (3, "b", "-U", 0), (3, "c", "+U", 0), (4, "d", "-U", 0)]
    reader = SplitReader(Stub(), tuple(CHANGES.names))
    for order in (None, ChangeOrder("_ordinal", 0, False)):
        blocks = SplitBlocks(reader, route(), lambda: (0, 0, 0), order, moves_keys=True)(iter([rows]))
        found = [row for block in unpacked(blocks) for part in block.batches() for row in part.to_pylist()]
        kinds = {(row["id"], row["v"]): RowKind(row[ROW_KIND]).symbol for row in found}
        assert kinds == {(1, "a"): "-D", (2, "a"): "+U", (3, "b"): "-U", (3, "c"): "+U", (4, "d"): "-D"}
