"""Changes without a place in the database's log, and rows that a snapshot read, among changes that have one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake import create_table, load_table
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.index.runs import lookup
from streamlake.pipeline.sinks.arguments.default_sequence import named_sequence, sequence_columns
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.records import ROW_KIND, ROW_ORDER, ROW_SEQUENCE, TRUNCATE_BELOW, RowKind
from streamlake.source.kafka_source import ENVELOPES, KafkaSource
from streamlake.write.upsert import upsert_task
from streamlake.write.upsert.upsert_task import write_changes
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts

C, U, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
Change = tuple[int, int | None, RowKind, int]
"""Key, ROW_SEQUENCE, what it does, the row's value."""


def changes(*rows: Change) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "v": pa.array([None if row[2] == D else row[3] for row in rows], pa.int64()),
            ROW_KIND: pa.array([int(row[2]) for row in rows], pa.int8()),
            ROW_SEQUENCE: pa.array([row[1] for row in rows], pa.int64()),
        }
    )


class Stream:
    def __init__(self, home: str | Path, **options: Any) -> None:
        location = str(Path(home, "table"))
        create_table(location, "id long, v long", format_version=3)
        self.upserts = LocalUpserts(location, key=["id"], sequence_by=[ROW_SEQUENCE], **options)

    def checkpoint(self, *rows: Change, truncates: tuple[int, ...] = ()) -> Any:
        return self.upserts.checkpoint(changes(*rows), truncates=[(mark, 0) for mark in truncates])

    def rows(self) -> dict[int, int]:
        table = load_table(self.upserts.location)
        check_table(table.table, files_exist=True)
        found = table.scan().to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: row["v"] for row in found}


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


@pytest.mark.parametrize("apart", [False, True])
def test_a_transaction_that_ran_while_the_snapshot_was_taken(stream: Stream, apart: bool) -> None:
    """It wrote to the log before the snapshot's place, and committed after it, so the snapshot does not have it."""
    snapshot, streamed = [(1, ~100, C, 1), (2, ~100, C, 2)], [(1, 90, U, 11), (2, 95, D, 0), (3, 96, C, 13)]
    for part in (snapshot, streamed) if apart else ([*snapshot, *streamed],):
        stream.checkpoint(*part)
    assert stream.rows() == {1: 11, 3: 13}
    receipt = stream.checkpoint((1, 89, U, 0), (3, 95, D, 0))
    assert stream.rows() == {1: 11, 3: 13}, "what was streamed keeps its place"
    assert receipt is None or receipt.counters["late"] == 2


def test_a_snapshot_that_was_started_again(stream: Stream) -> None:
    stream.checkpoint((1, ~100, C, 1), (2, ~100, C, 2), (1, ~200, C, 3))
    stream.checkpoint((2, ~200, C, 4))
    assert stream.rows() == {1: 3, 2: 4}


def test_a_later_snapshot_replaces_what_was_streamed(stream: Stream) -> None:
    stream.checkpoint((1, 50, C, 1), (2, 60, C, 2), (3, 61, D, 0))
    stream.checkpoint((1, ~100, C, 11), (2, ~100, C, 12), (3, ~100, C, 13))
    assert stream.rows() == {1: 11, 2: 12, 3: 13}
    stream.checkpoint((2, 59, U, 0), (1, 99, U, 21))
    assert stream.rows() == {1: 21, 2: 12, 3: 13}, "59 is older than the row that the snapshot replaced"


def test_changes_without_a_place_come_as_they_arrive(stream: Stream) -> None:
    stream.checkpoint((1, 50, C, 1), (2, None, C, 2), (1, None, U, 3), (2, None, U, 4))
    assert stream.rows() == {1: 3, 2: 4}
    stream.checkpoint((1, 49, U, 5), (2, 7, U, 6), (2, 6, U, 7))
    assert stream.rows() == {1: 3, 2: 6}
    stream.checkpoint((1, None, D, 0), (2, None, D, 0))
    assert stream.rows() == {}


def test_an_empty_index_is_not_searched(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = [(key, ~100, C, key) for key in range(50)] * 2
    with monkeypatch.context() as patched:
        patched.setattr(lookup, "_search_block", None)
        patched.setattr(lookup, "_Search", None)
        stream.checkpoint(*snapshot, (7, 90, U, 700), (8, 120, D, 0))
    stream.checkpoint((1, 101, U, 100), (2, 101, D, 0), (9, ~130, C, 900), (7, 89, U, 0))
    wanted = {key: key for key in range(50) if key not in (2, 8)}
    assert stream.rows() == {**wanted, 1: 100, 7: 700, 9: 900}
    monkeypatch.setattr(lookup, "_Search", None)
    with pytest.raises(StreamlakeError, match="not callable"):
        stream.checkpoint((1, 200, U, 0))


def test_equal_places_go_by_arrival(stream: Stream) -> None:
    stream.checkpoint((1, 50, C, 1), (1, 50, U, 2))
    stream.checkpoint((1, 50, U, 3), (2, 50, D, 0), (2, 50, C, 4))
    assert stream.rows() == {1: 3, 2: 4}


def test_what_a_snapshot_read_before_a_truncate_is_late(stream: Stream) -> None:
    stream.checkpoint((1, ~100, C, 1))
    stream.checkpoint((5, ~600, C, 5), truncates=(500,))
    assert stream.rows() == {5: 5}
    receipt = stream.checkpoint((2, ~100, C, 2), (3, None, C, 3), (5, ~100, C, 0), (4, ~500, C, 4))
    assert stream.rows() == {3: 3, 4: 4, 5: 5}
    assert receipt.counters["late"] == 2


@pytest.mark.parametrize(
    "known", [(), ((1, 400, C, 0),), ((1, 400, C, 0), (1, 401, D, 0)), ((1, ~300, C, 0),)]
)
@pytest.mark.parametrize("same_checkpoint", [False, True])
def test_what_a_snapshot_read_after_a_truncate_stays(
    stream: Stream, known: tuple[Change, ...], same_checkpoint: bool
) -> None:
    """Also where the truncate is told later, through another partition: of keys that are not known from before it."""
    stream.checkpoint(*known)
    rows = ((1, ~600, C, 1), (2, ~499, C, 2), (3, ~500, C, 3), (4, ~600, C, 4), (4, None, U, 44))
    if same_checkpoint:
        stream.checkpoint(*rows, truncates=(500,))
    elif known[:1] == ((1, 400, C, 0),):
        stream.checkpoint(truncates=(450,))
        stream.checkpoint(*rows)
        stream.checkpoint(truncates=(500,))
    else:
        stream.checkpoint(*rows)
        stream.checkpoint(truncates=(500,))
    assert stream.rows() == {1: 1, 3: 3, 4: 44}
    stream.checkpoint((1, 510, U, 11), (3, 499, U, 0), (4, 505, D, 0))
    assert stream.rows() == {1: 11, 3: 3}, "changes of transactions that ran meanwhile"
    stream.checkpoint((1, ~700, C, 12), truncates=(650,))
    stream.checkpoint(truncates=(660,))
    assert stream.rows() == {1: 12}


@pytest.mark.parametrize("place", [0, 1])
def test_a_truncate_among_the_changes_of_one_checkpoint(tmp_path: Path, place: int) -> None:
    stream = Stream(tmp_path, batch_rows=1, tasks=1)
    rows = changes((1, ~600, C, 1), (2, ~499, C, 2), (1, ~500, U, 3))
    stream.upserts.checkpoint(rows, truncates=[(500, place)])
    assert stream.rows() == {1: 3}


def test_what_has_no_place_and_came_before_a_truncate_goes(stream: Stream) -> None:
    """Truncates are handed to the task before all rows, and say where they stood."""
    told = pa.record_batch({TRUNCATE_BELOW: [500, 300], ROW_ORDER: [2, 4]})
    rows = changes(
        (1, None, C, 1), (2, ~600, C, 2), (3, None, C, 3), (4, ~600, C, 4), (4, None, U, 5), (1, 499, U, 6)
    )
    ordered = rows.append_column(ROW_ORDER, pa.array([0, 1, 2, 0, 1, 3]))

    def task(target: Any) -> list[Any]:
        return [write_changes(target, [told, *ordered.combine_chunks().to_batches()], 0, 0, 0)]

    run = Stream(Path(stream.upserts.location).parent / "one", tasks=1)
    run.upserts.run.table.refresh()
    identity = run.upserts._identity
    results = run.upserts.run.resolve(identity, task)
    committable = run.upserts.run.stage(identity, results)
    assert committable is not None
    run.upserts.run.commit(committable, results)
    assert run.rows() == {2: 2, 3: 3, 4: 5}


CHANGE = st.tuples(
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(0, 30), st.integers(0, 30).map(lambda place: ~place)),
    st.sampled_from([C, U, D]),
    st.integers(0, 1000),
)
CHECKPOINTS = st.lists(st.tuples(st.lists(CHANGE, max_size=8), st.integers(-30, 30)), max_size=4)


class Reference:
    """The rules, one change at a time in the order of arrival. A place that a snapshot has told, (False, place), is below those
    that changes have, (True, place)."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self._places: dict[int, tuple[bool, int]] = {}
        self._floor = -1

    def truncate(self, mark: int) -> None:
        self._floor = max(self._floor, mark)
        for key in [key for key in self.rows if self._places[key][1] < mark]:
            del self.rows[key]

    def change(self, key: int, place: int | None, kind: RowKind, value: int) -> None:
        known = self._places.get(key, (False, -1))
        if known[0] and known[1] <= self._floor:
            known = (False, -1)
        if place is not None and place >= 0:
            if place < self._floor or (True, place) < known:
                return
            self._places[key] = (True, place)
        else:
            if place is not None and ~place < self._floor:
                return
            self._places[key] = max(known, (False, max(self._floor, -1 if place is None else ~place)))
        self.rows.pop(key, None)
        if kind != D:
            self.rows[key] = value


@settings(max_examples=15, deadline=None)
@given(CHECKPOINTS, st.sampled_from([1, 3, 1000]))
def test_any_mixture_is_what_the_rules_say(
    checkpoints: list[tuple[list[Change], int]], batch_rows: int
) -> None:
    with tempfile.TemporaryDirectory() as home, patch.object(upsert_task, "_CHUNK_ROWS", batch_rows):
        stream, reference = Stream(home, batch_rows=batch_rows), Reference()
        for rows, mark in checkpoints:
            if mark >= 0:
                reference.truncate(mark)
            for row in rows:
                reference.change(*row)
            stream.checkpoint(*rows, truncates=(mark,) if mark >= 0 else ())
            assert stream.rows() == reference.rows


def test_which_sources_are_ordered_by_their_log() -> None:
    def default(format: str, mode: str = "upsert", delete_mode: str = "position") -> tuple[str, ...]:
        return sequence_columns(None, KafkaSource("b:1", "t", format=format), mode, delete_mode)

    ordered = [format for format in ("json", "avro", *ENVELOPES) if default(format)]
    assert ordered == [format for format in ENVELOPES if format.startswith("debezium")]
    assert default("debezium-json") == (ROW_SEQUENCE,)
    assert not default("debezium-json", delete_mode="copy-on-write")
    assert not default("debezium-json", delete_mode="equality")
    assert not default("debezium-json", mode="changelog")


@pytest.mark.parametrize("given", [(), [], "none", ("none",)])
def test_the_order_of_arrival_where_it_is_asked_for(given: Any) -> None:
    source = KafkaSource("b:1", "t", format="debezium-json")
    assert sequence_columns(given, source, "upsert", "position") == ()
    assert sequence_columns("lsn", source, "upsert", "position") == ("lsn",)
    assert named_sequence(given) == ()
    with pytest.raises(InvalidOptionError, match="sequence_by belongs to"):
        IcebergSink("/t", sequence_by=["at"])


def test_a_stream_that_ran_without_an_order_takes_it_up(stream: Stream) -> None:
    """Its index knows no places, so it is made anew of the table once; what comes then is kept."""
    before = LocalUpserts(stream.upserts.location, key=["id"])
    before.checkpoint(changes((1, 50, C, 1), (2, 60, C, 2)).drop_columns([ROW_SEQUENCE]))
    stream.upserts.restart()
    stream.upserts.checkpoint_id = 1
    receipt = stream.checkpoint((1, 10, U, 11), (3, 20, C, 3))
    assert receipt.counters["rows-indexed"] == 2
    receipt = stream.checkpoint((1, 9, U, 0), (2, 5, U, 12))
    assert receipt.counters["rows-indexed"] == 0
    assert stream.rows() == {1: 11, 2: 12, 3: 3}
