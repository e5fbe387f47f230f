"""Read-ahead: what comes next is made in threads while the present item is used.

The fetcher's chunks pass through here, so that waiting for the broker and parsing overlap with decoding and
writing, and so do the files of a scan. Invariant: what waits to be taken is bounded, nothing is reordered,
items are made and their generator is closed in one thread of their own, and every thread ends when the
consumer stops, for whatever reason.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
Batch = TypeVar("Batch")
Stopped = Callable[[], bool]
"""Whether no more items are wanted; the generator must then end at its next opportunity."""

_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


class _End:
    """The end of the items, with the error that ended them, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _Ahead(Generic[Item]):
    """The items of `make`, from one thread; up to `waiting` of them are ready beside the one being made."""

    def __init__(self, make: Callable[[Stopped], Generator[Item, None, None]], waiting: int) -> None:
        self._make = make
        self._ready: Queue[Item | _End] = Queue(waiting)
        self._stop = Event()
        self._thread = Thread(target=self._run, name="streamlake-read-ahead", daemon=True)
        self._thread.start()

    def items(self) -> Iterator[Item]:
        """The items. An error of `make` is raised after the items before it."""
        while True:
            item = self._ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
            del item

    def stop(self) -> None:
        """Want no more items."""
        self._stop.set()

    def join(self, timeout_seconds: float | None = None) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        end = _End()
        try:
            with contextlib.closing(self._make(self._stop.is_set)) as items:
                for item in items:
                    self._offer(item)
                    if self._stop.is_set():
                        return
        except BaseException as error:  # noqa: BLE001  raised where the items are taken
            end = _End(error)
        self._offer(end)

    def _offer(self, item: Item | _End) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(Full):
                self._ready.put(item, timeout=_LOOK_SECONDS)
                return


def read_ahead(make: Callable[[Stopped], Generator[Item, None, None]], waiting: int = 1) -> Iterator[Item]:
    """The items of `make`; up to `waiting` items are kept ready beside the one being made.

    An error of `make` is raised after the items before it.
    """
    ahead = _Ahead(make, waiting)
    try:
        yield from ahead.items()
    finally:
        ahead.stop()
        ahead.join(_END_SECONDS)


def in_order(
    items: Iterable[Item], read: Callable[[Item], Iterable[Batch]], *, workers: int, buffered: int = 4
) -> Iterator[Batch]:
    """The batches of `read(item)` for every item, in the items' order.

    Up to `workers` items are read at a time, `buffered` batches of each ahead. With one worker everything
    runs in the caller's thread.
    """
    if workers <= 1:
        for item in items:
            yield from read(item)
        return

    def reading(item: Item) -> _Ahead[Batch]:
        def make(_: Stopped) -> Generator[Batch, None, None]:
            yield from read(item)

        return _Ahead(make, buffered)

    running: deque[_Ahead[Batch]] = deque()
    try:
        for item in items:
            running.append(reading(item))
            if len(running) >= workers:
                yield from running[0].items()
                running.popleft().join()
        while running:
            yield from running[0].items()
            running.popleft().join()
    finally:
        for each in running:
            each.stop()
        for each in running:
            each.join()
