"""The runs of a sink's queries, with what the user reads of them: receipts, and the last error.

Place in the flow: one per sink, shared by what its queries start. Invariant: a query has one run at a time;
one that is replaced has stopped waiting and finished its commits before the next one opens the table.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from streamlake import clock
from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import StreamlakeError
from streamlake.maintain.background.due_tables import MaintainedTable
from streamlake.maintain.background.maintenance_settings import MaintenanceSettings
from streamlake.maintain.background.maintenance_worker import MaintenanceWorker
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.spark.interruption import MicroBatchInterruptedError, short_interruptions
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.tasks.watermarks import WATERMARK

RECEIPTS_KEPT = 200


class Beside:
    """The maintenance of a sink's table: its settings, and the `worker` that it shares with other tables."""

    def __init__(
        self, table: str, catalog: CatalogOption, pipeline: str | None, settings: MaintenanceSettings
    ) -> None:
        self._table = table
        self._catalog = catalog
        self._pipeline = pipeline
        self._settings = settings
        self.worker = MaintenanceWorker()

    def count(self, run: SinkRun, receipt: CommitReceipt) -> None:
        """Count a commit of this run. Reads nothing, and raises nothing."""
        if not self._settings.is_on or receipt.snapshot_id is None:
            return
        metadata = run.table.metadata
        snapshot = metadata.snapshot(receipt.snapshot_id)
        seconds = (receipt.write_ms + receipt.commit_ms) / 1000
        watermark = "" if snapshot is None else snapshot.summary.get(WATERMARK, "")
        if watermark.isdecimal():
            seconds = max(seconds, (clock.now_ms() - int(watermark)) / 1000)
        holder = self._pipeline or receipt.job_id
        table = MaintainedTable(self._table, self._catalog, run.branch, holder, self._settings)
        self.worker.committed(table, metadata, snapshot, seconds)


class QueryRuns:
    """The runs by the ids of their jobs; `opening` has the outage retry of those whose table is being opened.
    `receipts` are the last ones, `error` is the last error since a query was started.
    """

    def __init__(
        self, on_commit: Callable[[CommitReceipt], None] | None = None, beside: Beside | None = None
    ) -> None:
        self.receipts: deque[CommitReceipt] = deque(maxlen=RECEIPTS_KEPT)
        self.error: BaseException | None = None
        self.by_job: dict[str, SinkRun] = {}
        self.opening: dict[str, OutageRetry] = {}
        self.warned: set[str] = set()
        """The runs whose user knows that nothing orders the files of a micro-batch."""
        self.followers: dict[str, Callable[[CommitReceipt], None]] = {}
        """What else gets every receipt, by the checkpoint location of its query."""
        self._on_commit = on_commit
        self._beside = beside

    def deliver(self, receipt: CommitReceipt) -> None:
        """Keep the receipt, and pass it to the followers and to `on_commit`."""
        self.receipts.append(receipt)
        self.maintain(receipt)
        for follower in tuple(self.followers.values()):
            follower(receipt)
        if self._on_commit is not None:
            self._on_commit(receipt)

    def maintain(self, receipt: CommitReceipt) -> None:
        """Count a commit for the maintenance beside the query."""
        run = self.by_job.get(receipt.job_id)
        if self._beside is not None and run is not None:
            self._beside.count(run, receipt)

    def share(self, worker: MaintenanceWorker) -> None:
        """Let the table be maintained by the worker of all tables of a query."""
        if self._beside is not None:
            self._beside.worker = worker

    @property
    def maintained(self) -> tuple[TableUpkeep, ...]:
        """The state of the maintenance."""
        return () if self._beside is None else self._beside.worker.shown()

    @contextlib.contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Keep the error that ends a micro-batch; that of an interruption becomes short."""
        try:
            with short_interruptions():
                yield
        except StreamlakeError as error:
            self.error = error
            raise

    def interrupt(self, job_id: str) -> None:
        """Stop waiting, as the query ends; see SinkState."""
        if self._beside is not None:
            self._beside.worker.stop()
        self._interrupt_run(job_id)

    def finish(self, job_id: str) -> BaseException | None:
        """Finish the commits in the queue; see SinkState."""
        error = self._drained(job_id)
        # After the last commit, which could have begun the maintenance again.
        if self._beside is not None:
            self._beside.worker.stop()
        return error

    def replace(self, job_id: str) -> None:
        """End the run of a query that another one takes the place of; the maintenance goes on."""
        self._interrupt_run(job_id)
        self._drained(job_id)

    def _interrupt_run(self, job_id: str) -> None:
        if (opening := self.opening.get(job_id)) is not None:
            opening.stop()
        run = self.by_job.get(job_id)
        if run is not None:
            run.interrupt()

    def _drained(self, job_id: str) -> BaseException | None:
        run = self.by_job.get(job_id)
        error = None if run is None or run.queue is None else run.queue.drain()
        if error is None or isinstance(error, MicroBatchInterruptedError):
            return None
        self.error = error
        return error
