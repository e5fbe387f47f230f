"""Reading ahead: the next item is made while the present one is used.

The fetcher's chunks go through here, so that waiting for the broker and taking record batches apart overlap with decoding
and writing. Invariant: the items are made, and their maker is closed, in one thread of their own; when the consumer stops
for whatever reason, that thread ends too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from queue import Full, Queue
from typing import TypeVar

_Item = TypeVar("_Item")
Stopped = Callable[[], bool]
"""Tells the maker that nobody wants more; it shall then end at its next opportunity."""

_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


def read_ahead(make: Callable[[Stopped], Generator[_Item, None, None]], waiting: int = 1) -> Iterator[_Item]:
    """The items of `make`, of which up to `waiting` lie ready beside the one that is being made.

    What `make` raises is raised after the items before it.
    """
    ready: Queue[tuple[_Item | None, BaseException | None]] = Queue(waiting)
    stop = threading.Event()

    def offer(item: _Item | None, error: BaseException | None) -> None:
        while not stop.is_set():
            with contextlib.suppress(Full):
                ready.put((item, error), timeout=_LOOK_SECONDS)
                return

    def run() -> None:
        try:
            with contextlib.closing(make(stop.is_set)) as items:
                for item in items:
                    offer(item, None)
                    if stop.is_set():
                        return
        except BaseException as error:
            offer(None, error)
        else:
            offer(None, _End())

    thread = threading.Thread(target=run, name="streamlake-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, _End):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
            del item
    finally:
        stop.set()
        thread.join(_END_SECONDS)


class _End(Exception):
    """There are no more items."""
