"""Values that are expensive to read, read once and shared by threads, up to a number of bytes.

Invariant: threads that ask for the same value while it is read wait for that one reading; what is kept never exceeds
the limit by more than the value that was read last. What was dropped is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ReadOnce(Generic[Value]):
    """Keeps what was asked for last; `size` tells the bytes of a value."""

    def __init__(self, limit_bytes: int, size: Callable[[Value], int]) -> None:
        self._limit = limit_bytes
        self._size = size
        self._lock = Lock()
        self._values: OrderedDict[Hashable, Future[Value]] = OrderedDict()
        self._bytes: dict[Hashable, int] = {}

    def get(self, key: Hashable, read: Callable[[], Value]) -> Value:
        """The value of `key`, which `read` makes unless it is there. What `read` raises, every waiting caller gets."""
        with self._lock:
            known = self._values.get(key)
            if known is not None:
                self._values.move_to_end(key)
            else:
                mine = self._values[key] = Future()
        if known is not None:
            return known.result()
        try:
            value = read()
        except BaseException as error:
            with self._lock:
                del self._values[key]
            mine.set_exception(error)
            raise
        mine.set_result(value)
        with self._lock:
            self._bytes[key] = self._size(value)
            self._shrink(key)
        return value

    def _shrink(self, newest: Hashable) -> None:
        total = sum(self._bytes.values())
        for key in [key for key in self._values if key in self._bytes and key != newest]:
            if total <= self._limit:
                return
            total -= self._bytes.pop(key)
            del self._values[key]
