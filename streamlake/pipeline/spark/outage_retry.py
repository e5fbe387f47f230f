"""Outage retry: while storage or catalog fail, reads and durable writes of the driver are tried again.

Place in the flow: around everything of a checkpoint that a driver reads from or writes to storage and
catalog. The limits are the table's `commit.retry.*`. Invariant: stopping the query does not wait for the end
of an outage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from streamlake import clock
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import CommitStateUnknownError, MissingFileError, StorageError
from streamlake.pipeline.spark.interruption import stopped_error
from streamlake.table.options import RetryOptions
from streamlake.table.updates.retries import retry_through_outage

_POLL_SECONDS = 0.1

T = TypeVar("T")


class OutageRetry:
    """The outage retry of one run of a query with one table; `stop` ends it, from any thread. `properties`
    gives the table's properties each time; before the table is open, those that it is created with.
    """

    def __init__(self, properties: Callable[[], Mapping[str, str]]) -> None:
        self._properties = properties
        self._stopping = threading.Event()

    def through(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns. It may be called again, and must find out what an earlier call has done.

        Raises its last StorageError or CommitStateUnknownError when the limits are reached,
        MicroBatchInterruptedError when the query is stopped and it would have to wait.
        """
        options = RetryOptions.for_commit(self._properties())
        return retry_through_outage(options, attempt, self._wait)

    def commit(self, identity: CheckpointIdentity, attempt: Callable[[], T]) -> T:
        """`through` for the commit of a staged checkpoint: the error says that the checkpoint is kept."""
        try:
            return self.through(attempt)
        except MissingFileError:
            raise
        except (StorageError, CommitStateUnknownError) as error:
            raise type(error)(
                f"{error}. {identity} is staged, nothing of it is lost, and the next start commits it first; "
                "commit.retry.num-retries and commit.retry.total-timeout-ms say how long an outage may last"
            ) from error

    def stop(self) -> None:
        """Stop waiting: from now on an attempt that would have to wait raises."""
        self._stopping.set()

    def _wait(self, seconds: float) -> None:
        deadline = clock.monotonic() + seconds
        while (left := deadline - clock.monotonic()) > 0:
            if self._stopping.is_set():
                raise stopped_error()
            clock.sleep(min(left, _POLL_SECONDS))
