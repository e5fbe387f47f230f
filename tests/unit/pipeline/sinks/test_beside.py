"""What a sink tells its maintenance of each commit, and when the maintenance ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from streamlake import IcebergSink, IcebergTables, clock
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import InvalidOptionError
from streamlake.maintain.background.due_tables import MaintainedTable
from streamlake.maintain.background.maintenance_worker import MaintenanceWorker
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.sinks.query_runs import QueryRuns
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from streamlake.tasks.watermarks import WATERMARK
from tests.helpers.tables import data_file, make_table

HOLDS = {"history.expire.max-snapshot-age-ms": "432000000", "history.expire.min-snapshots-to-keep": "100"}


class Worker:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[MaintainedTable, int | None, float]] = []
        self.stops = 0

    def committed(self, table: MaintainedTable, metadata: Any, snapshot: Snapshot | None, lag: float) -> None:
        self.told.append((table, None if snapshot is None else snapshot.snapshot_id, lag))

    def stop(self) -> None:
        self.stops += 1


class Run:
    """A run of a query, as far as its maintenance needs one."""

    branch = "main"
    queue = None

    def __init__(self, table: Table) -> None:
        self.table = table

    def interrupt(self) -> None:
        pass


def told(sink: IcebergSink, table: Table) -> tuple[QueryRuns, Worker]:
    """The runs of a sink with a query on this table, and who is told of its commits."""
    worker = Worker()
    runs = sink._runs
    runs.share(cast(MaintenanceWorker, worker))
    runs.by_job["job"] = cast(SinkRun, Run(table))
    return runs, worker


def commit(table: Table, **summary: str) -> CommitReceipt:
    operation = AppendFiles(table)
    operation.set_summary(summary)
    snapshot = operation.append_file(data_file(table)).commit()
    return CommitReceipt("job", 1, Outcome.COMMITTED, snapshot.snapshot_id, write_ms=1_500, commit_ms=500)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(tmp_path / "t")


def test_each_commit_is_told_with_how_far_behind_the_stream_is(table: Table) -> None:
    sink = IcebergSink(table.location, pipeline="orders", maintenance=True)
    runs, worker = told(sink, table)
    first = commit(table)
    runs.deliver(first)
    old = commit(table, **{WATERMARK: str(clock.now_ms() - 90_000)})
    runs.deliver(old)
    runs.deliver(CommitReceipt("job", 2, Outcome.EMPTY, None))
    assert [(each.table, each.holder, snapshot) for each, snapshot, _ in worker.told] == [
        (table.location, "orders", first.snapshot_id),
        (table.location, "orders", old.snapshot_id),
    ]
    assert worker.told[0][2] == 2.0
    assert 90 <= worker.told[1][2] < 150


def test_a_stream_without_a_name_is_told_by_its_job(table: Table) -> None:
    runs, worker = told(IcebergSink(table.location, maintenance={}), table)
    runs.deliver(commit(table))
    assert worker.told[0][0].holder == "job"


def test_in_python_it_is_off_unless_it_is_given(table: Table) -> None:
    for sink in (IcebergSink(table.location), IcebergSink(table.location, maintenance=False)):
        assert sink.maintained == ()
        runs, worker = told(sink, table)
        runs.deliver(commit(table))
        assert worker.told == []


def test_it_ends_with_the_query_and_not_with_a_run_that_is_replaced(table: Table) -> None:
    runs, worker = told(IcebergSink(table.location, maintenance=True), table)
    runs.replace("job")
    assert worker.stops == 0
    runs.interrupt("job")
    assert worker.stops == 1
    runs.finish("job")
    assert worker.stops == 2


def test_a_table_that_is_created_says_that_its_history_ends(tmp_path: Path) -> None:
    for number, (maintenance, wanted) in enumerate(
        ((True, HOLDS), (None, HOLDS), ({"actions": "manifests"}, HOLDS))
    ):
        sink = IcebergSink(
            str(tmp_path / str(number)),
            create=True,
            maintenance=maintenance,  # type: ignore[arg-type]
        )
        stream = sink.stream(sink.settings.calls)
        made = stream.table("id long", sink.settings.new_table)
        found = {name: text for name, text in made.properties.items() if name.startswith("history.")}
        assert found == wanted
    own = {"history.expire.min-snapshots-to-keep": "7"}
    sink = IcebergSink(str(tmp_path / "own"), create=True, properties=own, maintenance=True)
    made = sink.stream(sink.settings.calls).table("id long", sink.settings.new_table)
    assert made.properties["history.expire.min-snapshots-to-keep"] == "7"


def test_what_is_wrong_is_said_by_the_constructor() -> None:
    wrong = {"compact.schedule.data-files": 3}
    with pytest.raises(InvalidOptionError, match=r"did you mean 'compact\.schedule\.data-file"):
        IcebergSink("/t", maintenance=wrong)
    with pytest.raises(InvalidOptionError, match=r"did you mean 'compact\.schedule\.data-file"):
        IcebergTables("/t/{topic}", maintenance=wrong)
