"""The maintenance of a stream's tables: a thread of the driver that waits, and lets processes work.

Place in the flow: the sink reports each commit; `stop` comes with the end of the query. Invariants: nothing
here delays, fails or ends the stream, whatever happens; one run at a time, for all tables of the query.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from streamlake import clock
from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.maintain.background.due_tables import DueTables, MaintainedTable
from streamlake.maintain.background.run_process import RunProcess
from streamlake.maintain.background.run_values import RunReport, RunRequest
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0


class Runner(Protocol):
    """Does a run, and can be stopped from another thread; used for one start of the worker."""

    def __call__(self, request: RunRequest) -> RunReport:
        """Do the run, and wait for its end."""
        ...

    def stop(self) -> None:
        """End the run that is under way, and let no other begin."""
        ...


class MaintenanceWorker:
    """Works from the first commit that is reported until `stop`, and again after the next one."""

    def __init__(self, runner: Callable[[], Runner] = RunProcess) -> None:
        self._make = runner
        self._tables = DueTables()
        self._changed = threading.Condition()
        self._runner: Runner | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def committed(
        self,
        table: MaintainedTable,
        metadata: TableMetadata,
        snapshot: Snapshot | None,
        lag_seconds: float,
    ) -> None:
        """Count a commit; called on the stream's thread. Raises nothing."""
        try:
            with self._changed:
                self._tables.committed(table, metadata, snapshot, lag_seconds, clock.monotonic())
                if self._thread is None:
                    self._begin()
                self._changed.notify()
        except Exception:  # noqa: BLE001  the stream goes on without
            _LOG.warning("maintenance of %s does not count a commit", table.table, exc_info=True)

    def stop(self) -> None:
        """End the work: the run that is under way is abandoned. Returns within some seconds."""
        with self._changed:
            self._is_stopped = True
            runner, thread = self._runner, self._thread
            self._changed.notify()
        if runner is not None:
            runner.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def shown(self) -> tuple[TableUpkeep, ...]:
        """The state of each table, for `status`."""
        with self._changed:
            return self._tables.shown(clock.monotonic())

    def _begin(self) -> None:
        self._is_stopped = False
        runner = self._runner = self._make()
        thread = self._thread = threading.Thread(
            target=self._work, args=(runner,), name="streamlake-maintenance", daemon=True
        )
        thread.start()

    def _work(self, runner: Runner) -> None:
        while (request := self._next()) is not None:
            try:
                report = runner(request)
            except Exception as error:  # noqa: BLE001  the thread has no caller to raise to
                report = RunReport(error=f"{type(error).__name__}: {error}")
            if self._has_ended(request, report):
                _tell(request, report)

    def _next(self) -> RunRequest | None:
        """Wait for the next run; None for a stop, after which this thread is no longer the worker's."""
        with self._changed:
            while not self._is_stopped:
                request = self._tables.request(clock.monotonic())
                if request is not None:
                    return request
                self._changed.wait(_LOOK_SECONDS)
            self._thread = self._runner = None
            return None

    def _has_ended(self, request: RunRequest, report: RunReport) -> bool:
        """Keep what a run has done; False for one that was abandoned."""
        with self._changed:
            if not self._is_stopped:
                self._tables.ended(request, report, clock.monotonic())
            return not self._is_stopped


def _tell(request: RunRequest, report: RunReport) -> None:
    if report.first_error is not None:
        _LOG.warning(
            "maintenance of %s failed and is tried again later; the stream goes on: %s",
            request.table,
            report.first_error,
        )
    elif report.held is None:
        _LOG.info("maintenance of %s: %s; %s", request.table, ", ".join(report.done), report.in_words)
