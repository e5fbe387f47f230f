"""Reads several files at once and returns their rows in order.

Invariant: what waits to be taken is bounded (`workers` files of at most `buffered` batches each), nothing is
reordered, and every thread ends when the consumer stops early or any file fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
Batch = TypeVar("Batch")
_POLL_SECONDS = 0.1


class _End:
    """The end of one item's batches, with the error that ended them, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _Worker(Generic[Item, Batch]):
    def __init__(
        self, item: Item, read: Callable[[Item], Iterable[Batch]], buffered: int, stop: Event
    ) -> None:
        self._item = item
        self._read = read
        self._stop = stop
        self._queue: Queue[Batch | _End] = Queue(buffered)
        self._thread = Thread(target=self._run, name="streamlake-read", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        end = _End()
        try:
            for batch in self._read(self._item):
                if not self._put(batch):
                    return
        except BaseException as error:  # noqa: BLE001  raised where the batches are taken
            end = _End(error)
        self._put(end)

    def _put(self, value: Batch | _End) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(value, timeout=_POLL_SECONDS)
                return True
            except Full:
                continue
        return False

    def batches(self) -> Iterator[Batch]:
        while True:
            try:
                value = self._queue.get(timeout=_POLL_SECONDS)
            except Empty:
                if not self._thread.is_alive() and self._queue.empty():
                    raise RuntimeError("a reading thread ended without a word") from None
                continue
            if isinstance(value, _End):
                if value.error is not None:
                    raise value.error
                return
            yield value

    def join(self) -> None:
        self._thread.join()


def in_order(
    items: Iterable[Item], read: Callable[[Item], Iterable[Batch]], *, workers: int, buffered: int = 4
) -> Iterator[Batch]:
    """The batches of `read(item)` for every item, in the items' order.

    Up to `workers` items are read at a time. With one worker everything runs in the caller's thread.
    """
    if workers <= 1:
        for item in items:
            yield from read(item)
        return
    stop, running = Event(), deque[_Worker[Item, Batch]]()
    try:
        for item in items:
            running.append(_Worker(item, read, buffered, stop))
            if len(running) >= workers:
                yield from running[0].batches()
                running.popleft()
        while running:
            yield from running[0].batches()
            running.popleft()
    finally:
        stop.set()
        for worker in running:
            worker.join()
