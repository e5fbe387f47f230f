"""The hold of a stream: a branch that leads back to what is committed, moved by receipts, and never past them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from streamlake import clock
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import InvalidOptionError, StorageError
from streamlake.pipeline.iceberg import snapshot_hold
from streamlake.pipeline.iceberg.snapshot_hold import HOLD_PREFIX, hold_name
from streamlake.pipeline.iceberg.stream_hold import StreamHold
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import LoadedTable, create_table, load_table
from tests.unit.pipeline.iceberg.table_streams import add, enumerator_of, expire, set_branch, source_of, tag

JOB = "job-1"
EARLIEST = {"starting_strategy": "incremental-from-earliest-snapshot"}
ONE = {"max_planning_snapshot_count": 1}


@pytest.fixture
def table(tmp_path: Path) -> LoadedTable:
    return create_table(str(tmp_path / "bronze"), "id long, category string")


def held(table: LoadedTable, job_id: str = JOB) -> list[int]:
    """The snapshots that the hold keeps, oldest first."""
    metadata = load_table(table.location).metadata
    ref = metadata.refs.get(hold_name(job_id))
    if ref is None:
        return []
    assert ref.type == "branch"
    assert ref.max_snapshot_age_ms == 1
    assert ref.max_ref_age_ms == (1 << 63) - 1
    kept = [each.snapshot_id for each in metadata.ancestors(ref.snapshot_id)]
    return kept[: ref.min_snapshots_to_keep][::-1]


class Run:
    """A run of a stream, with the log of offsets that outlives it."""

    def __init__(self, table: LoadedTable, log: list[TableOffset] | None = None, **options: Any) -> None:
        given = {"hold_snapshots": True, **ONE, **EARLIEST, **options}
        self.enumerator = enumerator_of(table, **given)
        self.hold = StreamHold(source_of(table, **given))
        self.log = [] if log is None else log
        self.hold.begin(JOB, len(self.log), lambda at: self.log[at] if 0 <= at < len(self.log) else None)

    def plan(self) -> TableOffset:
        self.hold.keep()
        end = self.enumerator.next(self.log[-1]) if self.log else self.enumerator.first()
        self.log.append(end)
        self.hold.planned(len(self.log) - 1, end)
        return end

    def commit(self, number: int, job_id: str = JOB) -> None:
        self.hold.committed(CommitReceipt(job_id, number, Outcome.COMMITTED, 1))


def test_it_moves_with_what_is_committed(table: LoadedTable) -> None:
    one, two, three = add(table, 1), add(table, 2), add(table, 3)
    run = Run(table)
    assert held(table) == [one, two, three], "before anything is read"
    run.plan()
    run.plan()
    assert held(table) == [one, two, three], "planned is not committed"
    run.commit(0, "another job")
    run.hold.keep()
    assert held(table) == [one, two, three]
    run.commit(0)
    run.hold.keep()
    assert held(table) == [one, two, three], "the position's own snapshot is kept: the way leads over it"
    run.commit(1)
    four = add(table, 4)
    run.hold.keep()
    assert held(table) == [two, three, four]


def test_a_half_read_snapshot_is_kept(table: LoadedTable) -> None:
    add(table, 1)
    two = add(table, 2)
    run = Run(table, starting_strategy="table-scan-then-incremental", max_files_per_trigger=1)
    assert held(table) == [two]
    run.plan()
    run.commit(0)
    three = add(table, 3)
    run.hold.keep()
    assert held(table) == [two, three]


def test_at_most_once_per_monitor_interval(table: LoadedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    one = add(table, 1)
    run = Run(table, monitor_interval="60 s")
    run.plan()
    run.commit(0)
    two = add(table, 2)
    run.hold.keep()
    assert held(table) == [one]
    now[0] += 61
    versions = len(load_table(table.location).metadata.metadata_log)
    run.hold.keep()
    assert held(table) == [one, two]
    now[0] += 61
    run.hold.keep()
    assert len(load_table(table.location).metadata.metadata_log) == versions + 1, "what is right stays"


def test_another_run_keeps_it_as_far_back_as_it_is(table: LoadedTable) -> None:
    add(table, 1)
    two, three = add(table, 2), add(table, 3)
    run = Run(table)
    for number in range(2):
        run.plan()
        run.commit(number)
    run.hold.keep()
    assert held(table) == [two, three]
    run.plan()  # and the driver dies
    again = Run(table, run.log[:2])
    four = add(table, 4)
    assert held(table) == [two, three]
    again.hold.keep()
    assert held(table) == [two, three, four], "what is new is held, and what may be read again"


def test_a_run_with_checkpoints_that_may_not_be_committed(table: LoadedTable) -> None:
    """The option was set later: what the first run has planned may be staged, and not committed."""
    ids = [add(table, number) for number in range(4)]
    run = Run(table, hold_snapshots=False)
    ManageRefs(load_table(table.location).table).remove(hold_name(JOB)).commit()
    for _ in range(3):
        run.plan()
    again = Run(table, run.log)
    assert held(table) == ids
    again.hold.committed(CommitReceipt(JOB, 2, Outcome.SKIPPED, None))
    again.hold.keep()
    assert held(table) == ids, "a checkpoint that this run has not planned has no place here"


def test_two_streams_hold_each_their_own(table: LoadedTable) -> None:
    one, two = add(table, 1), add(table, 2)
    run = Run(table)
    other = StreamHold(source_of(table, hold_snapshots=True))
    other.begin("job-2", 0, lambda at: None)
    run.plan()
    run.commit(0)
    run.hold.keep()
    assert (held(table), held(table, "job-2")) == ([one, two], [two])


def test_an_empty_table(table: LoadedTable) -> None:
    run = Run(table)
    assert held(table) == []
    run.plan()
    run.commit(0)
    one = add(table, 1)
    run.hold.keep()
    assert held(table) == [one]


def test_it_goes_when_the_end_is_committed(table: LoadedTable) -> None:
    one = add(table, 1)
    run = Run(table, end_snapshot_id=one)
    end = run.plan()
    run.hold.settle(end, is_finished=True)
    assert held(table) == [one], "its commit has not come"
    run = Run(table, [], end_snapshot_id=one)
    end = run.plan()
    run.commit(0)
    run.hold.settle(end, is_finished=True)
    assert held(table) == []


def test_it_stays_where_a_bounded_run_ends(table: LoadedTable) -> None:
    add(table, 1)
    two = add(table, 2)
    run = Run(table, max_planning_snapshot_count=5, monitor_interval="1 h")
    end = run.plan()
    run.commit(0)
    run.hold.settle(end, is_finished=False)
    assert held(table) == [two]


def test_it_was_removed(table: LoadedTable, caplog: pytest.LogCaptureFixture) -> None:
    one = add(table, 1)
    run = Run(table)
    ManageRefs(load_table(table.location).table).remove(hold_name(JOB)).commit()
    with caplog.at_level(logging.WARNING):
        run.hold.keep()
    assert held(table) == [one]
    assert "was removed by somebody else" in caplog.text


def test_it_stays_while_the_branch_does_not_lead_back(table: LoadedTable) -> None:
    one, two = add(table, 1), add(table, 2)
    run = Run(table)
    for number in range(2):
        run.plan()
        run.commit(number)
    run.hold.keep()
    assert held(table) == [two]
    set_branch(table, one)
    add(table, 3)
    run.hold.keep()
    assert held(table) == [two], "the branch can be set back to it"


def test_a_table_that_cannot_be_written(table: LoadedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    add(table, 1)

    def refuse(*_: Any) -> None:
        raise StorageError("permission denied")

    monkeypatch.setattr(snapshot_hold, "commit_metadata", refuse)
    with pytest.raises(InvalidOptionError, match=r"hold-snapshots=true keeps a branch .*permission denied"):
        Run(table)


def test_a_failure_later_is_logged_and_tried_again(
    table: LoadedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = add(table, 1)
    run = Run(table)
    run.plan()
    run.commit(0)
    two = add(table, 2)

    def refuse(*_: Any) -> None:
        raise StorageError("an outage")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(snapshot_hold, "commit_metadata", refuse)
        run.hold.keep()
    assert "could not be moved; it is tried again: an outage" in caplog.text
    run.hold.keep()
    assert held(table) == [one, two]


def test_a_tag_of_the_name(table: LoadedTable) -> None:
    add(table, 1)
    tag(table, f"{HOLD_PREFIX}{JOB}")
    with pytest.raises(InvalidOptionError, match="has a tag 'streamlake-hold-job-1'"):
        Run(table)


@pytest.mark.parametrize("strategy", ["table-scan-then-incremental", "incremental-from-latest-snapshot"])
def test_a_directory_that_goes_on_where_a_lost_one_ended_holds_from_there(
    table: LoadedTable, strategy: str
) -> None:
    """Its first entry has no start; where the options would begin by now is of no account."""
    one, two = add(table, 1), add(table, 2)
    lost = Run(table)
    lost.plan()
    lost.plan()
    three, four = add(table, 3), add(table, 4)
    assert lost.log[-1].start is None
    ManageRefs(table.refresh().table).remove(hold_name(JOB)).commit()
    run = Run(table, [lost.log[-1]], starting_strategy=strategy)
    assert held(table) == [two, three, four]
    ManageRefs(table.refresh().table).remove(hold_name(JOB)).commit()
    expire(table.refresh(), one)
    Run(table, run.log, starting_strategy="incremental-from-snapshot-id", start_snapshot_id=one)
    assert held(table) == [two, three, four]
