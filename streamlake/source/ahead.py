"""Read-ahead: the next item is made in a thread while the current one is used.

The fetcher's chunks pass through here, so that waiting for the broker and parsing record batches overlap with
decoding and writing. Invariant: the items are made, and their generator is closed, in one thread of their
own. When the consumer stops for whatever reason, that thread ends too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from queue import Full, Queue
from typing import TypeVar

_Item = TypeVar("_Item")
Stopped = Callable[[], bool]
"""Whether no more items are wanted; the generator must then end at its next opportunity."""

_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


def read_ahead(make: Callable[[Stopped], Generator[_Item, None, None]], waiting: int = 1) -> Iterator[_Item]:
    """The items of `make`; up to `waiting` items are kept ready beside the one being made.

    An error of `make` is raised after the items before it.
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
        except BaseException as error:  # noqa: BLE001  raised where the batches are taken
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
