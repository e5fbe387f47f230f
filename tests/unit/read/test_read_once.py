"""Values that are read once for several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from streamlake.read.deletes import ReadOnce


def test_threads_share_one_reading():
    values = ReadOnce(100, len)
    started, go, reads = Barrier(3), Event(), []

    def read():
        reads.append(1)
        go.wait(10)
        return b"value"

    def ask(_):
        started.wait(10)
        return values.get("key", read)

    with ThreadPoolExecutor(3) as pool:
        answers = pool.map(ask, range(3))
        go.set()
        assert list(answers) == [b"value"] * 3
    assert reads == [1]


def test_what_was_asked_for_last_is_kept():
    values = ReadOnce(10, len)
    reads = []

    def get(key, size):
        def read():
            reads.append(key)
            return b"x" * size

        return values.get(key, read)

    get("a", 4), get("b", 4), get("a", 4), get("c", 4), get("a", 4)
    assert reads == ["a", "b", "c"]
    get("b", 4)
    assert reads == ["a", "b", "c", "b"]
    get("large", 50)
    get("large", 50)
    assert reads == ["a", "b", "c", "b", "large"]


def test_a_failure_reaches_everyone_and_is_tried_again():
    values = ReadOnce(10, len)

    def fail():
        raise OSError("gone")

    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            values.get("key", fail)
    assert values.get("key", lambda: b"there") == b"there"
