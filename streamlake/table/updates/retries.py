"""Optimistic retry: runs an attempt, and after a conflict waits and runs it again.

The one loop behind every commit. Invariant: only CommitConflictError is retried here, because
only this error means that nothing was committed and that a new attempt on the refreshed table may
succeed. `retry_through_outage` is for callers whose attempt finds out by itself whether an
earlier one was committed after all.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from streamlake import clock
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    MissingFileError,
    StorageError,
    StreamlakeError,
)
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.operations import TableOperations
from streamlake.table.options import RetryOptions

T = TypeVar("T")


def wait_seconds(options: RetryOptions, failures: int) -> float:
    """The wait after `failures` conflicts (from 1), in seconds.

    It doubles each time up to a maximum. A random factor between a half and one keeps writers that collided
    once from colliding again.
    """
    doubled: int = options.min_wait_ms * 2 ** min(failures - 1, 40)
    return min(options.max_wait_ms, doubled) * random.uniform(0.5, 1.0) / 1000


def retry_on_conflict(options: RetryOptions, attempt: Callable[[], T]) -> T:
    """The first result of `attempt`. Raises CommitConflictError when the retries or the time are used up."""
    deadline = clock.monotonic() + options.total_timeout_ms / 1000
    failures = 0
    while True:
        try:
            return attempt()
        except CommitConflictError as conflict:
            failures += 1
            if failures > options.num_retries or clock.monotonic() >= deadline:
                raise CommitConflictError(
                    f"{conflict} (gave up after {failures} attempts; other writers were faster each time: "
                    "commit less often or raise commit.retry.num-retries)"
                ) from conflict
            clock.sleep(min(wait_seconds(options, failures), max(0.0, deadline - clock.monotonic())))


def retry_through_outage(
    options: RetryOptions, attempt: Callable[[], T], wait: Callable[[float], None] = clock.sleep
) -> T:
    """The outage retry: runs `attempt` again while the storage or the catalog fails, within `options`.

    Gives its first result. For attempts that may be repeated although the outcome of the last one is not
    known. A missing file is no outage. `wait` sleeps for the given seconds, or raises to give up. Raises the
    last error when the retries or the time are used up.
    """
    deadline = clock.monotonic() + options.total_timeout_ms / 1000
    failures = 0
    while True:
        try:
            return attempt()
        except (StorageError, CommitStateUnknownError) as error:
            failures += 1
            if (
                isinstance(error, MissingFileError)
                or failures > options.num_retries
                or clock.monotonic() >= deadline
            ):
                raise
            wait(min(wait_seconds(options, failures), max(0.0, deadline - clock.monotonic())))


def found_after_unknown_state(
    operations: TableOperations, options: RetryOptions, is_there: Callable[[TableMetadata], bool]
) -> TableMetadata | None:
    """After CommitStateUnknownError: the table's metadata once it shows our change, else None.

    None means that the outcome stays unknown (the request may still be on its way), not that it failed.
    """
    deadline = clock.monotonic() + options.total_timeout_ms / 1000
    for check in range(options.num_retries + 1):
        if check:
            clock.sleep(wait_seconds(options, check))
        try:
            metadata = operations.refresh()
        except (StreamlakeError, OSError):
            metadata = None
        if metadata is not None and is_there(metadata):
            return metadata
        if clock.monotonic() >= deadline:
            break
    return None
