"""The runs of a sink's queries, with what the user reads of them: receipts, and the last error.

Place in the flow: one per sink, shared by what its queries start. Invariant: a query has one run at a time;
one that is replaced has stopped waiting and finished its commits before the next one opens the table.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import StreamlakeError
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.spark.interruption import MicroBatchInterruptedError, short_interruptions
from streamlake.pipeline.spark.outage_retry import OutageRetry

RECEIPTS_KEPT = 200


class QueryRuns:
    """The runs by the ids of their jobs; `opening` has the outage retry of those whose table is being opened.
    `receipts` are the last ones, `error` is the last error since a query was started.
    """

    def __init__(self, on_commit: Callable[[CommitReceipt], None] | None = None) -> None:
        self.receipts: deque[CommitReceipt] = deque(maxlen=RECEIPTS_KEPT)
        self.error: BaseException | None = None
        self.by_job: dict[str, SinkRun] = {}
        self.opening: dict[str, OutageRetry] = {}
        self.warned: set[str] = set()
        """The runs whose user knows that nothing orders the files of a micro-batch."""
        self.followers: dict[str, Callable[[CommitReceipt], None]] = {}
        """What else gets every receipt, by the checkpoint location of its query."""
        self._on_commit = on_commit

    def deliver(self, receipt: CommitReceipt) -> None:
        """Keep the receipt, and pass it to the followers and to `on_commit`."""
        self.receipts.append(receipt)
        for follower in tuple(self.followers.values()):
            follower(receipt)
        if self._on_commit is not None:
            self._on_commit(receipt)

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
        if (opening := self.opening.get(job_id)) is not None:
            opening.stop()
        run = self.by_job.get(job_id)
        if run is not None:
            run.interrupt()

    def finish(self, job_id: str) -> BaseException | None:
        """Finish the commits in the queue; see SinkState."""
        run = self.by_job.get(job_id)
        error = None if run is None or run.queue is None else run.queue.drain()
        if error is None or isinstance(error, MicroBatchInterruptedError):
            return None
        self.error = error
        return error
