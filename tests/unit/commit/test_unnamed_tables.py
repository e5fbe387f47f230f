"""Streams without a name that read a table: when one would write again what another has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.catalog.open import create
from streamlake.commit.offset_summary import committed_table_offset, source_offsets, table_offset
from streamlake.errors import LineageError
from streamlake.source.iceberg.table_offset import (
    FilePosition,
    SnapshotPosition,
    SplitPlanning,
    TableOffset,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from tests.unit.commit.test_unnamed import commit, start


def after(number: int, within: FilePosition | None = None, *, is_scan: bool = False) -> SnapshotPosition:
    """The position after snapshot 100 + n, whose sequence number is n."""
    return SnapshotPosition(100 + number if number else None, within, is_scan, number or None)


def offset(
    end: SnapshotPosition, begin: SnapshotPosition | None = None, *, uuid: str = "u", filter_: str = ""
) -> TableOffset:
    planning = SplitPlanning(filter_, 0, 1, 1, 0)
    return TableOffset(uuid, end, 1, planning, begin)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create(str(tmp_path / "t"), parse_ddl("id long"))


def refused(table: Table, theirs: TableOffset, ours: TableOffset) -> str | None:
    """Why a stream that begins with `ours` is refused after another one has committed `theirs`."""
    commit(table, theirs.to_text())
    assert table.current_snapshot is not None
    assert committed_table_offset(table.current_snapshot.summary) == theirs
    try:
        start(table, ours.to_text())
    except LineageError as error:
        return str(error)
    return None


def test_a_tables_offset_is_none_of_kafkas() -> None:
    text = offset(after(3)).to_text()
    assert source_offsets([text]) is None
    assert table_offset([text]) == offset(after(3))
    assert table_offset(['{"offsets": {"t": {"0": 1}}}']) is table_offset([text, text]) is None
    assert table_offset(["nonsense"]) is None


@pytest.mark.parametrize(
    ("theirs", "begin"),
    [
        (after(3), after(5, FilePosition(), is_scan=True)),
        (after(3, FilePosition(4, 0), is_scan=True), after(3, FilePosition(), is_scan=True)),
        (after(3), after(0)),
        (after(3), after(2)),
        (after(3, FilePosition(1, 0)), after(2)),
    ],
)
def test_rows_that_both_have_read(table: Table, theirs: SnapshotPosition, begin: SnapshotPosition) -> None:
    found = refused(table, offset(theirs), offset(after(6), begin))
    assert "has read rows of the table with uuid u up to snapshot 103 already" in str(found)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (offset(after(3)), offset(after(6), after(3))),
        (offset(after(3)), offset(after(6), after(4))),
        (offset(after(3)), offset(after(6), after(0), uuid="other")),
        (offset(after(3)), offset(after(6), after(0), filter_="abc")),
        (offset(after(0)), offset(after(6), after(0))),
    ],
)
def test_rows_that_only_one_has_read(table: Table, theirs: TableOffset, ours: TableOffset) -> None:
    assert refused(table, theirs, ours) is None
