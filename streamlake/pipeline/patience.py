"""Going on through an outage: while storage or catalog fail, what is to be written durably is tried again.

Place in the flow: around everything of a checkpoint that a driver reads from or writes to storage and catalog. The
budget is the table's `commit.retry.*`. Invariant: whoever stops the query does not wait for the end of an outage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from streamlake import clock
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import CommitStateUnknownError, MissingFileError, StorageError
from streamlake.pipeline.interruption import stopped_error
from streamlake.table.options import RetryOptions
from streamlake.table.retries import retry_through_outage

_POLL_SECONDS = 0.1

T = TypeVar("T")


class Patience:
    """That of one run of a query with one table; `stop` ends it, from any thread. `properties` are the table's, asked for
    every time; before it is open, those that it is created with."""

    def __init__(self, properties: Callable[[], Mapping[str, str]]) -> None:
        self._properties = properties
        self._stopping = threading.Event()

    def through(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns. It may be repeated, and finds out by itself what an earlier attempt has done.

        Raises its last StorageError or CommitStateUnknownError when the budget is used up, MicroBatchInterruptedError
        when the query is stopped while it would have to wait.
        """
        options = RetryOptions.for_commit(self._properties())
        return retry_through_outage(options, attempt, self._wait)

    def commit(self, identity: CheckpointIdentity, attempt: Callable[[], T]) -> T:
        """`through` for the commit of a checkpoint that is staged: the error says that it is kept."""
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
        """Wait no more."""
        self._stopping.set()

    def _wait(self, seconds: float) -> None:
        deadline = clock.monotonic() + seconds
        while (left := deadline - clock.monotonic()) > 0:
            if self._stopping.is_set():
                raise stopped_error()
            clock.sleep(min(left, _POLL_SECONDS))
