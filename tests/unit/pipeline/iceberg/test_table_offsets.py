"""What micro-batches of a table on the direct path read, on a log that is a dictionary: ends, replays, fences, schemas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamlake import create_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import FencedError, InvalidOptionError, LineageError, SourceError
from streamlake.pipeline.direct import planned_offsets
from streamlake.pipeline.direct.offset_log import OffsetLog
from streamlake.pipeline.iceberg.split_frame import grouped
from streamlake.pipeline.iceberg.table_offsets import TABLE_OFFSETS, TableOffsets, kept_columns
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.source.offsets import SourceOffsets
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.tables import LoadedTable, load_table
from tests.unit.pipeline.iceberg.table_streams import add, overwrite, set_branch, source_of
from tests.unit.read.written_tables import append


class _Path:
    def toString(self) -> str:
        return "checkpoint"


class Log(OffsetLog[TableOffset]):
    """A log in memory."""

    def __init__(self) -> None:
        self.ends: dict[int, TableOffset] = {}
        self._location = _Path()
        self._form = TABLE_OFFSETS

    def last(self) -> TableOffset | None:
        return self.ends.get(max(self.ends, default=-1))

    def read(self, checkpoint_id: int) -> TableOffset | None:
        return self.ends.get(checkpoint_id)

    def add(self, checkpoint_id: int, end: TableOffset) -> None:
        if checkpoint_id in self.ends:
            raise FencedError("there is one")
        self.ends[checkpoint_id] = end


class _Stopped(Exception):
    """The query was stopped while it waited."""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedTable:
    class Wait:
        def __init__(self, *_: object) -> None: ...

        def until_next(self) -> None:
            raise _Stopped

        def sleep(self, ms: int) -> None:
            raise _Stopped

    monkeypatch.setattr(planned_offsets, "_Wait", Wait)
    return create_table(tmp_path / "t", "id long, category string")


def offsets(table: LoadedTable, log: Log, *, is_bounded: bool = False, **options: Any) -> TableOffsets:
    opened, source = load_table(table.location).table, source_of(table, **options)
    kept = kept_columns(opened, source, log.last())
    return TableOffsets(opened, source, log, 0, is_bounded=is_bounded, kept=kept)


def identity(log: Log, number: int) -> CheckpointIdentity:
    begin = () if not number else (log.ends[number - 1].to_text(),)
    return CheckpointIdentity("p", "job", number, begin, (log.ends[number].to_text(),))


def ids(mine: TableOffsets, log: Log, number: int) -> list[int]:
    pieces = mine.pieces(identity(log, number), in_order=True)
    return [
        row
        for split in pieces.splits
        for rows in pieces.scan.read(split)
        for row in rows.column("id").to_pylist()
    ]


def run(mine: TableOffsets, log: Log) -> list[list[int]]:
    """The ids of each micro-batch until the query would wait."""
    found = []
    while True:
        number = len(log.ends)
        try:
            mine.plan(None, number)  # type: ignore[arg-type]
        except _Stopped:
            return found
        mine.confirm(identity(log, number))
        found.append(ids(mine, log, number))


def test_micro_batches_follow_and_a_restart_goes_on(table: LoadedTable) -> None:
    log = Log()
    add(table, 0, 1)
    mine = offsets(table, log)
    assert run(mine, log) == [[0, 1]]
    add(table, 2)
    assert run(mine, log) == [[2]]
    add(table, 3)
    assert run(offsets(table, log), log) == [[3]]
    assert not mine.reached.is_set()


def test_a_bounded_query_ends_at_the_head_of_its_start(table: LoadedTable) -> None:
    log = Log()
    for number in range(3):
        add(table, number)
    mine = offsets(table, log, is_bounded=True, max_files_per_trigger=1)
    add(table, 9)
    assert sorted(run(mine, log)) == [[0], [1], [2]]
    assert mine.reached.is_set()
    assert run(offsets(table, log, is_bounded=True), log) == [[9]]


def test_a_bounded_query_on_an_empty_table_ends_at_once(table: LoadedTable) -> None:
    log = Log()
    mine = offsets(table, log, is_bounded=True)
    assert run(mine, log) == [[]]
    assert mine.reached.is_set()
    add(table, 1)
    assert run(offsets(table, log, is_bounded=True), log) == [[1]]


def test_a_bounded_query_ends_where_its_end_was_rolled_back(
    table: LoadedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch's newest snapshot is its end then, as it is for a query that starts later."""
    log = Log()
    add(table, 0)
    run(offsets(table, log), log)
    first = table.current_snapshot
    assert first is not None
    add(table, 1)
    mine = offsets(table, log, is_bounded=True)
    set_branch(table, first.snapshot_id)
    # The first look finds the branch rolled back, the second one that nothing is left.
    monkeypatch.setattr(planned_offsets._Wait, "until_next", lambda self: None)
    assert run(mine, log) == []
    assert mine.reached.is_set()
    add(table, 2)
    late = offsets(table, log, is_bounded=True)
    set_branch(table, first.snapshot_id)
    add(table, 3)
    assert run(late, log) == [[3]]
    assert late.reached.is_set()


def test_what_a_caller_waits_for_on_a_table_without_sequence_numbers(table: LoadedTable) -> None:
    """Of format version 1. The snapshot that it waits for is read together with a later one."""
    log = Log()
    add(table, 0)
    mine = offsets(table, log)
    run(mine, log)
    add(table, 1)
    without_sequence_numbers(table)
    is_read = mine.now()
    add(table, 2)
    without_sequence_numbers(table)
    run(mine, log)
    with pytest.raises(_Stopped):
        mine.plan(None, len(log.ends))  # type: ignore[arg-type]
    assert is_read(mine.done)


def without_sequence_numbers(table: LoadedTable) -> None:
    base = table.metadata
    snapshots = tuple(replace(each, sequence_number=0) for each in base.snapshots)
    table.table.operations.commit(base, replace(base, snapshots=snapshots))
    table.refresh()


def test_what_a_caller_waits_for_is_what_is_there_now(table: LoadedTable) -> None:
    log = Log()
    add(table, 0)
    mine = offsets(table, log, monitor_interval="1 h")
    run(mine, log)
    add(table, 1)
    assert run(mine, log) == [], "the table is not asked again within the interval"
    is_read = mine.now()
    assert not is_read(mine.done)
    assert run(mine, log) == [[1]]
    with pytest.raises(_Stopped):
        mine.plan(None, 2)  # type: ignore[arg-type]
    assert is_read(mine.done)


def test_an_entry_of_another_driver_and_a_replay(table: LoadedTable) -> None:
    log = Log()
    add(table, 0)
    run(offsets(table, log), log)
    add(table, 1)
    run(offsets(table, log), log)
    again = offsets(table, log)
    again.plan(None, 1)  # type: ignore[arg-type]
    again.confirm(identity(log, 1))
    assert ids(again, log, 1) == [1]
    other = CheckpointIdentity("p", "job", 1, (), identity(log, 1).end_offsets)
    with pytest.raises(FencedError, match="only one is started"):
        again.confirm(other)
    kafka = CheckpointIdentity("p", "job", 1, (), (SourceOffsets({("t", 0): 1}).to_text(),))
    with pytest.raises(InvalidOptionError, match="another kind of query"):
        again.between(kafka)
    del log.ends[0]
    with pytest.raises(SourceError, match=r"0 is missing.* how far this query has read its source table"):
        offsets(table, log).plan(None, 1)  # type: ignore[arg-type]


def test_nothing_is_logged_where_the_table_cannot_be_read_on(table: LoadedTable) -> None:
    log = Log()
    add(table, 0)
    run(offsets(table, log), log)
    overwrite(table, "id = 0", 5)
    with pytest.raises(LineageError, match="ways out"):
        run(offsets(table, log), log)
    assert list(log.ends) == [0]
    assert run(offsets(table, log, on_delete="skip"), log) == [[]]


def test_the_columns_that_a_stream_began_with(table: LoadedTable) -> None:
    log = Log()
    add(table, 0)
    mine = offsets(table, log)
    run(mine, log)
    UpdateSchema(table.table).add_column("x", "int").rename("category", "kind").commit()
    table.refresh()
    append(table, [{"id": 1, "kind": "b", "x": 7}])
    run(mine, log)
    pieces = mine.pieces(identity(log, 1), in_order=False)
    assert pieces.columns.schema.column_names == ["id", "category"]
    assert pieces.columns.unread == ("x",)
    [rows] = [rows.to_pylist() for split in pieces.splits for rows in pieces.scan.read(split)]
    assert rows == [{"id": 1, "category": "b"}]
    chosen = offsets(table, log, columns=["id"])
    assert chosen.pieces(identity(log, 1), in_order=False).columns.unread == ()
    named = offsets(table, log, columns=["id", "x"])
    append(table, [{"id": 2, "kind": "c", "x": 8}])
    run(named, log)
    assert named.pieces(identity(log, 2), in_order=False).columns.schema.column_names == ["id", "x"]


def test_splits_in_groups_of_neighbours() -> None:
    assert grouped(range(5), None) == [(0,), (1,), (2,), (3,), (4,)]
    assert grouped(range(5), 2) == [(0, 1), (2, 3, 4)]
    assert grouped(range(2), 7) == [(0,), (1,)]
    assert grouped([], 3) == []
