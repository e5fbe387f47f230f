"""The worker beside a stream: it runs what is due, in a process of its own, and hurts the stream in no case."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.failpoints import VARIABLE
from streamlake.maintain.background.due_tables import MaintainedTable
from streamlake.maintain.background.lease import lease_of, take_lease
from streamlake.maintain.background.maintenance_settings import MaintenanceSettings
from streamlake.maintain.background.maintenance_worker import MaintenanceWorker
from streamlake.maintain.background.run_process import RunProcess
from streamlake.maintain.background.run_values import ActionEnding, RunReport, RunRequest
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from tests.helpers.invariants import check_table
from tests.helpers.tables import data_file, make_table

SETTINGS = MaintenanceSettings.of(
    {"actions": "manifests", "manifests.schedule.commit-count": 3, "rate-limit-seconds": 0}
)


class Run:
    """A runner whose runs end when the test says so."""

    def __init__(self) -> None:
        self.requests: list[RunRequest] = []
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.stopped = False
        self.error: Exception | None = None

    def __call__(self, request: RunRequest) -> RunReport:
        self.requests.append(request)
        self.began.set()
        self.may_end.wait(10)
        if self.error is not None:
            raise self.error
        return RunReport(tuple(ActionEnding(action) for action in request.actions))

    def stop(self) -> None:
        self.stopped = True
        self.may_end.set()


class Stream:
    """Commits of one file each, counted for the maintenance."""

    def __init__(self, table: Table, worker: MaintenanceWorker, holder: str = "me") -> None:
        self.table, self.worker = table, worker
        self.maintained = MaintainedTable(table.location, None, "main", holder, SETTINGS)

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            operation = AppendFiles(self.table.refresh())
            snapshot = operation.append_file(data_file(self.table)).commit()
            self.worker.committed(self.maintained, self.table.metadata, snapshot, 0.0)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(tmp_path / "t", properties={"commit.manifest-merge.enabled": "false"})


@pytest.fixture
def workers() -> Iterator[list[MaintenanceWorker]]:
    made: list[MaintenanceWorker] = []
    yield made
    for each in made:
        each.stop()


def shown_at_end(worker: MaintenanceWorker, seconds: float = 30) -> TableUpkeep:
    """The state of the one table once a run has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        [shown] = worker.shown()
        if shown.ended_ms is not None or shown.waits_for is not None:
            return shown
        time.sleep(0.02)
    raise AssertionError("no run has ended")


def test_a_run_does_what_is_due(table: Table, workers: list[MaintenanceWorker]) -> None:
    worker = MaintenanceWorker()
    workers.append(worker)
    Stream(table, worker).commit(3)
    shown = shown_at_end(worker)
    assert (shown.error, shown.actions, shown.due) == (None, ("manifests",), ())
    assert "manifests 3 to 1" in shown.what
    after = open_table(table.location)
    assert len(after.manifests(after.current_snapshot)) == 1
    lease = lease_of(after.properties)
    assert lease is not None
    assert lease.holder == "me"


def test_a_commit_is_never_held_up(table: Table, workers: list[MaintenanceWorker]) -> None:
    run = Run()
    worker = MaintenanceWorker(lambda: run)
    workers.append(worker)
    stream = Stream(table, worker)
    stream.commit(3)
    assert run.began.wait(10)
    stream.commit(5)
    assert not run.may_end.is_set(), "they were counted while the run went on"
    run.may_end.set()


def test_a_stop_ends_the_run_at_once_and_a_later_start_goes_on(
    table: Table, workers: list[MaintenanceWorker]
) -> None:
    runs: list[Run] = []

    def made() -> Run:
        runs.append(Run())
        return runs[-1]

    worker = MaintenanceWorker(made)
    workers.append(worker)
    stream = Stream(table, worker)
    stream.commit(3)
    assert runs[0].began.wait(10)
    worker.stop()
    assert runs[0].stopped
    [shown] = worker.shown()
    assert (shown.ended_ms, shown.due) == (None, ("manifests",)), "an abandoned run counts for nothing"
    stream.commit()
    assert runs[1].began.wait(10)


def test_an_error_is_told_and_nothing_else_happens(
    table: Table, workers: list[MaintenanceWorker], caplog: pytest.LogCaptureFixture
) -> None:
    run = Run()
    run.error = ValueError("boom")
    run.may_end.set()
    worker = MaintenanceWorker(lambda: run)
    workers.append(worker)
    stream = Stream(table, worker)
    with caplog.at_level(logging.WARNING):
        stream.commit(3)
        shown = shown_at_end(worker)
        stream.commit(2)
    assert shown.error == "ValueError: boom"
    assert "failed and is tried again later; the stream goes on: ValueError: boom" in caplog.text
    assert len(run.requests) == 1


def test_a_count_that_cannot_be_made_is_told(
    table: Table,
    workers: list[MaintenanceWorker],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = MaintenanceWorker(Run)
    workers.append(worker)
    monkeypatch.setattr(worker, "_tables", None)
    Stream(table, worker).commit()
    assert "does not count a commit" in caplog.text


def test_a_process_that_dies_is_an_error_of_the_run(
    table: Table, workers: list[MaintenanceWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "maintenance-begun=kill")
    worker = MaintenanceWorker()
    workers.append(worker)
    stream = Stream(table, worker)
    stream.commit(3)
    shown = shown_at_end(worker)
    assert shown.error == "its process has ended with code -9"
    stream.commit()
    check_table(table)


def test_two_pipelines_agree_by_the_table(table: Table, workers: list[MaintenanceWorker]) -> None:
    take_lease(table, "other", 600)
    worker = MaintenanceWorker()
    workers.append(worker)
    Stream(table, worker).commit(3)
    shown = shown_at_end(worker)
    assert (shown.waits_for, shown.error, shown.ended_ms) == ("other, which maintains it", None, None)
    after = open_table(table.location)
    assert len(after.manifests(after.current_snapshot)) == 3


def test_a_run_that_is_stopped_leaves_the_table_whole(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "manifest-rewritten=delay:60")
    process = RunProcess()
    stream = Stream(table, MaintenanceWorker(Run))
    stream.commit(3)
    stream.worker.stop()
    ended: list[RunReport] = []
    request = RunRequest(table.location, None, "main", ("manifests",), "me", 60)
    thread = threading.Thread(target=lambda: ended.append(process(request)))
    thread.start()
    deadline = time.monotonic() + 30
    while lease_of(open_table(table.location).properties) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    began = time.monotonic()
    process.stop()
    thread.join(10)
    assert time.monotonic() - began < 5
    assert ended[0].error is not None
    check_table(table)
    assert process(request).error == "stopped"


def test_it_ends_with_its_driver(tmp_path: Path, table: Table) -> None:
    """A driver that is killed leaves no process behind."""
    request = RunRequest(table.location, None, "main", ("manifests",), "me", 60)
    code = f"""
        import os, signal, threading, time
        from streamlake.maintain.background import run_process
        from streamlake.maintain.background.run_values import RunRequest
        run = run_process.RunProcess()
        threading.Thread(target=run, args=(RunRequest.from_text({request.to_text()!r}),), daemon=True).start()
        while run._process is None:
            time.sleep(0.01)
        print(run._process.pid, flush=True)
        time.sleep(60)
    """
    environment = {**os.environ, VARIABLE: "maintenance-begun=delay:60"}
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert driver.stdout is not None
    pid = int(driver.stdout.readline())
    deadline = time.monotonic() + 30
    while lease_of(open_table(table.location).properties) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
