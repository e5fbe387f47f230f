"""Where a stream begins and ends: every strategy with empty, written and branched tables, and bounds.

The expectations are those of Iceberg's TestContinuousSplitPlannerImpl and ...StartStrategy.
"""

from __future__ import annotations

import pytest

from streamlake import clock
from streamlake.errors import InvalidOptionError
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import create_table
from tests.unit.pipeline.iceberg.table_streams import (
    Stream,
    add,
    compact,
    enumerator_of,
    expire,
    set_branch,
    tag,
)

SCAN = "table-scan-then-incremental"
LATEST = "incremental-from-latest-snapshot"
EXCLUSIVE = "incremental-from-latest-snapshot-exclusive"
EARLIEST = "incremental-from-earliest-snapshot"
BY_ID = "incremental-from-snapshot-id"
BY_TIME = "incremental-from-snapshot-timestamp"


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string")


@pytest.mark.parametrize("strategy", [SCAN, LATEST, EXCLUSIVE, EARLIEST])
def test_an_empty_table_is_read_from_its_first_snapshot(table, strategy):
    stream = Stream(table, starting_strategy=strategy)
    assert stream.step() == []
    assert stream.step() is None
    add(table, 1, 2)
    add(table, 3)
    assert stream.run() == [1, 2, 3]
    for number in (4, 5, 6):
        add(table, number)
        assert stream.step() == [number]
    assert stream.step() is None


@pytest.mark.parametrize(
    ("strategy", "first"), [(SCAN, [1, 2, 3, 4]), (LATEST, [3, 4]), (EXCLUSIVE, []), (EARLIEST, [1, 2, 3, 4])]
)
def test_a_written_table(table, strategy, first):
    add(table, 1, 2)
    add(table, 3, 4)
    stream = Stream(table, starting_strategy=strategy)
    assert sorted(stream.step()) == first
    for number in (5, 6, 7):
        add(table, number)
        assert stream.step() == [number]
    assert stream.step() is None


def test_a_scan_is_the_default(table):
    add(table, 1)
    assert Stream(table).run() == [1]


def test_by_snapshot_id_and_by_tag_the_first_one_is_included(table):
    add(table, 1)
    second = add(table, 2)
    add(table, 3)
    tag(table, "eod", second)
    assert Stream(table, starting_strategy=BY_ID, start_snapshot_id=second).run() == [2, 3]
    assert Stream(table, start_snapshot_id=second).run() == [2, 3]
    assert Stream(table, start_tag="eod").run() == [2, 3]


def test_by_timestamp_the_snapshot_of_that_time_or_the_next_one(table):
    for number in range(3):
        add(table, number)
        # Snapshots of one millisecond are another test's.
        clock.sleep(0.003)
    first, second, third = table.snapshots
    assert Stream(table, start_snapshot_timestamp=second.timestamp_ms).run() == [1, 2]
    assert Stream(table, start_snapshot_timestamp=second.timestamp_ms - 1).run() == [1, 2]
    assert Stream(table, start_snapshot_timestamp=1).run() == [0, 1, 2]
    assert Stream(table, start_snapshot_timestamp=third.timestamp_ms).run() == [2]
    with pytest.raises(InvalidOptionError, match="no snapshot of branch main was committed then or later"):
        Stream(table, start_snapshot_timestamp=third.timestamp_ms + 1).run()
    expire(table, first.snapshot_id)
    with pytest.raises(InvalidOptionError, match="have expired"):
        Stream(table, start_snapshot_timestamp=1).run()
    assert Stream(table, start_snapshot_timestamp=second.timestamp_ms).run() == [1, 2]


def test_of_snapshots_of_one_millisecond_the_oldest(table, monkeypatch):
    monkeypatch.setattr("streamlake.clock.now_ms", lambda: 1_800_000_000_000)
    for number in range(3):
        add(table, number)
    assert len({each.timestamp_ms for each in table.snapshots}) < 3
    at = table.snapshots[-1].timestamp_ms
    assert Stream(table, start_snapshot_timestamp=at).run() == [
        number for number, each in enumerate(table.snapshots) if each.timestamp_ms == at
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"start_snapshot_id": 1}, "has no snapshot 1"),
        ({"start_tag": "eod"}, "has no tag 'eod'"),
        ({"start_snapshot_timestamp": 1}, "no snapshot of branch main"),
        ({"end_snapshot_id": 1}, "has no snapshot 1"),
        ({"branch": "dev"}, "has no branch 'dev'"),
    ],
)
def test_what_an_empty_table_does_not_have(table, options, error):
    with pytest.raises(InvalidOptionError, match=error):
        enumerator_of(table, **options).first()


def test_names_of_refs_are_suggested(table):
    add(table, 1)
    tag(table, "end-of-day")
    with pytest.raises(InvalidOptionError, match="did you mean 'end-of-day'"):
        enumerator_of(table, start_tag="end-of-dya").first()
    with pytest.raises(InvalidOptionError, match="'end-of-day' is a tag, and not a branch"):
        enumerator_of(table, branch="end-of-day").first()
    with pytest.raises(InvalidOptionError, match="'main' is a branch, and not a tag"):
        enumerator_of(table, end_tag="main").first()


def test_after_expiry_the_earliest_is_the_oldest_that_is_left(table):
    first, second = add(table, 1), add(table, 2)
    add(table, 3)
    expire(table, first)
    assert Stream(table, starting_strategy=EARLIEST).run() == [2, 3]
    assert Stream(table, start_snapshot_id=second).run() == [2, 3]
    with pytest.raises(InvalidOptionError, match="may have expired"):
        Stream(table, start_snapshot_id=first).run()


@pytest.fixture
def branched(table):
    """Main: 1, 2, 3; dev, from the second on: 1, 2, 10, 11."""
    add(table, 1)
    second = add(table, 2)
    ManageRefs(table.table).create_branch("dev", second).commit()
    table.refresh()
    add(table, 3)
    add(table, 10, branch="dev")
    add(table, 11, branch="dev")
    return table


@pytest.mark.parametrize(
    ("strategy", "main", "dev"),
    [
        (SCAN, [1, 2, 3], [1, 2, 10, 11]),
        (LATEST, [3], [11]),
        (EXCLUSIVE, [], []),
        (EARLIEST, [1, 2, 3], [1, 2, 10, 11]),
    ],
)
def test_a_branch_is_read_by_itself(branched, strategy, main, dev):
    streams = [Stream(branched, starting_strategy=strategy, branch=branch) for branch in ("main", "dev")]
    assert [sorted(stream.run()) for stream in streams] == [main, dev]
    add(branched, 4)
    add(branched, 12, branch="dev")
    assert [stream.run() for stream in streams] == [[4], [12]]


def test_a_start_has_to_be_of_the_branch(branched):
    tip = branched.metadata.head("dev").snapshot_id
    with pytest.raises(InvalidOptionError, match="is not of branch main"):
        Stream(branched, start_snapshot_id=tip).run()
    assert Stream(branched, start_snapshot_id=tip, branch="dev").run() == [11]
    with pytest.raises(InvalidOptionError, match="is not of branch main"):
        Stream(branched, starting_strategy=EARLIEST, end_snapshot_id=tip).run()


def test_a_fast_forwarded_branch_goes_on(branched):
    ManageRefs(branched.table).create_branch("audited", branched.snapshots[0].snapshot_id).commit()
    branched.refresh()
    stream = Stream(branched, branch="audited")
    assert stream.run() == [1]
    set_branch(branched, branched.current_snapshot.snapshot_id, "audited")
    assert stream.run() == [2, 3]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_stream_with_an_end_finishes_there(table, restarts):
    ids = [add(table, number) for number in range(5)]
    tag(table, "end", ids[3])
    for options in ({"end_snapshot_id": ids[3]}, {"end_tag": "end"}):
        stream = Stream(table, starting_strategy=EARLIEST, max_planning_snapshot_count=2, **options)
        while (stream.step()) is not None:
            if restarts:
                stream.restart()
        assert stream.batches == [[0, 1], [2, 3]]
        assert stream.cursor.is_done
        add(table, 9)
        assert stream.step() is None


def test_the_end_may_expire_once_it_is_reached(table):
    ids = [add(table, number) for number in range(3)]
    stream = Stream(table, starting_strategy=EARLIEST, end_snapshot_id=ids[1])
    assert stream.run() == [0, 1]
    expire(table, *ids[:2])
    stream.restart()
    assert stream.step() is None
    assert stream.cursor.is_done


def test_a_scan_with_an_end_is_of_the_end(table):
    ids = [add(table, number) for number in range(3)]
    stream = Stream(table, end_snapshot_id=ids[1])
    assert sorted(stream.run()) == [0, 1]
    assert stream.cursor.is_done


def test_an_end_before_the_start(table):
    ids = [add(table, number) for number in range(4)]
    for options in (
        {"start_snapshot_id": ids[2], "end_snapshot_id": ids[1]},
        {"starting_strategy": LATEST, "end_snapshot_id": ids[1]},
        {"starting_strategy": EXCLUSIVE, "end_snapshot_id": ids[1]},
    ):
        with pytest.raises(InvalidOptionError, match="comes before the start"):
            Stream(table, **options).run()
    assert Stream(table, start_snapshot_id=ids[2], end_snapshot_id=ids[2]).run() == [2]
    stream = Stream(table)
    stream.run()
    stream.restart(end_snapshot_id=ids[1])
    with pytest.raises(InvalidOptionError, match="comes after the end"):
        stream.step()


def test_the_start_is_resolved_once(table):
    """A replay of the first micro-batch means the same snapshot, whatever was committed since."""
    add(table, 1)
    add(table, 2)
    for strategy, expected in ((SCAN, [1, 2]), (LATEST, [2]), (EXCLUSIVE, [])):
        stream = Stream(table, starting_strategy=strategy)
        assert sorted(stream.step()) == expected
        add(table, 9)
        compact(table)
        stream.restart()
        assert sorted(stream.read(0, stream.enumerator)) == expected
        assert stream.run() == [9]
        set_branch(table, table.snapshots[1].snapshot_id)


def test_a_target_is_the_last_snapshot_that_is_read(table):
    ids = [add(table, number) for number in range(3)]
    enumerator = enumerator_of(table, starting_strategy=EARLIEST)
    assert enumerator.head() == ids[2]
    add(table, 9)
    first = enumerator.first(target=ids[2])
    assert first.position.snapshot_id == ids[2]
    assert enumerator.next(first, target=ids[2]) == first
    assert enumerator.next(first).position.snapshot_id == table.current_snapshot.snapshot_id
