"""Parallel work on several tables, on the driver: an error of one table does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import StreamlakeError

Ending = CommitReceipt | StreamlakeError | None
"""How a checkpoint ended for one table. None: it is staged and the table's queue commits it, or it has not
ended yet."""

_THREADS = 8

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(items: Sequence[T], work: Callable[[T], R]) -> list[R | StreamlakeError]:
    """What `work` returns for each item, or the StreamlakeError that it raised. Any other error is raised
    here, once all are done; a single item is worked on in the caller's thread.
    """

    def tried(item: T) -> R | StreamlakeError:
        try:
            return work(item)
        except StreamlakeError as error:
            return error

    if len(items) < 2:
        return [tried(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="streamlake-table") as pool:
        return list(pool.map(tried, items))
