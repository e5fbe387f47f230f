"""A lock for commits of one machine: processes that commit to the same table queue instead of colliding.

An advisory lock on the table's metadata directory, held for one commit attempt. It is a courtesy between
streamlake processes. Where it cannot be had (another platform, a network file system, a process that hangs)
the commit goes ahead without it, and the exclusive create of the next version decides as always.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from streamlake import clock

_fcntl: ModuleType | None
try:
    _fcntl = import_module("fcntl")
except ImportError:  # not a POSIX system: no lock, only the swap itself
    _fcntl = None

LONGEST_WAIT_S = 10.0


@contextmanager
def commit_turn(directory: str, longest_wait_s: float = LONGEST_WAIT_S) -> Iterator[None]:
    """Hold the lock of a local directory, after waiting for it at most `longest_wait_s` seconds."""
    descriptor = None if _fcntl is None else _open(directory)
    try:
        if descriptor is not None:
            _wait_for_lock(descriptor, longest_wait_s)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(directory: str) -> int | None:
    try:
        return os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _wait_for_lock(descriptor: int, longest_wait_s: float) -> None:
    lock: Any = _fcntl
    deadline = clock.monotonic() + longest_wait_s
    while True:
        try:
            lock.flock(descriptor, lock.LOCK_EX | lock.LOCK_NB)
            return
        except BlockingIOError:
            if clock.monotonic() >= deadline:
                return
            clock.sleep(random.uniform(0.0005, 0.003))
        except OSError:
            return
