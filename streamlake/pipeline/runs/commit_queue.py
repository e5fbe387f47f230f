"""The commit queue: staged checkpoints wait here for their commit, which one thread does in order.

Place in the flow: between stage and commit, where a stream may write ahead of its commits
(`max_pending_checkpoints` above 1). Checkpoints in the queue are durable already, so Spark may go on.
Invariants: commits happen in the order of checkpoints; after an error nothing more is committed, and the rest
stays staged for the next start; at most `limit` checkpoints are staged and not committed, and adding one more
waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping

from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError
from streamlake.options import Property, int_property
from streamlake.pipeline.spark.interruption import stopped_error
from streamlake.write.upsert.upsert_target import COPY_ON_WRITE, POSITION

MAX_PENDING = "commit.max-pending-checkpoints"
PROPERTIES = (
    Property(
        MAX_PENDING,
        "1",
        "How many checkpoints may be staged and not yet committed; upserts by position or copy-on-write "
        "need 1.",
    ),
)

Work = Callable[[], CommitReceipt]


def queue_limit(given: int | None, properties: Mapping[str, str], delete_mode: str | None) -> int:
    """How many checkpoints may be staged and not yet committed: `given`, else the table property, else 1.

    `delete_mode` is None for streams that only add rows. Raises InvalidOptionError for a number below 1, and
    for a number above 1 where a checkpoint has to know the rows that the one before it has left.
    """
    limit = int_property(properties, MAX_PENDING, 1, minimum=1) if given is None else given
    where = f"table property {MAX_PENDING}" if given is None else "max_pending_checkpoints"
    if limit < 1:
        raise InvalidOptionError(f"{where} is {limit}; it must be at least 1")
    if limit > 1 and delete_mode in (POSITION, COPY_ON_WRITE):
        raise InvalidOptionError(
            f"{where} is {limit}, but delete_mode '{delete_mode}' resolves each checkpoint against the table "
            "that the one before it has left, so only 1 is possible: leave it at 1, or use delete_mode "
            "'equality'"
        )
    return limit


class CommitQueue:
    """The commits of one run of a query. `deliver` gets every receipt, in order, on the thread that commits.

    The thread lives as long as there is something to commit, and the interpreter does not exit before it. So
    a program that does not wait for its query still commits what the query has staged.
    """

    def __init__(self, limit: int, deliver: Callable[[CommitReceipt], None]) -> None:
        self._limit = limit
        self._deliver = deliver
        self._waiting: deque[Work] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._interrupted = False
        self._used = False

    @property
    def is_used(self) -> bool:
        """Whether a checkpoint went through the queue: from then on its thread decides what is committed."""
        return self._used

    def put(self, work: Work) -> None:
        """Add a checkpoint, and wait until fewer than `limit` are pending.

        Raises the error of a failed commit, this one's or an earlier one's, and MicroBatchInterruptedError
        when the query is stopped meanwhile; the checkpoint stays staged in both cases.
        """
        with self._changed:
            self._check()
            self._used = True
            self._waiting.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._commit_all, name="streamlake-commits")
                self._thread.start()
            while self._error is None and not self._interrupted and len(self._waiting) >= self._limit:
                self._changed.wait()
            self._check()

    def check(self) -> None:
        """Raise the error of a failed commit, if there is one."""
        with self._changed:
            self._check()

    def interrupt(self) -> None:
        """Stop waiting for room, because the query is being stopped."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def drain(self) -> BaseException | None:
        """Wait until everything is committed or a commit has failed; returns its error, else None."""
        with self._changed:
            while self._thread is not None:
                self._changed.wait()
            return self._error

    @property
    def pending(self) -> int:
        """How many checkpoints are staged and not committed."""
        return len(self._waiting)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._interrupted:
            raise stopped_error()

    def _commit_all(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                work = self._waiting[0]
            try:
                self._deliver(work())
            except BaseException as error:  # noqa: BLE001  raised where the query waits for the queue
                with self._changed:
                    self._error = error
                    self._thread = None
                    self._changed.notify_all()
                return
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()
