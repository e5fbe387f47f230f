"""Reading ahead keeps the order, bounds what waits, and ends its threads."""

from __future__ import annotations

import threading
import time

import pytest

from streamlake.ahead import in_order


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name == "streamlake-read-ahead"]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_order_is_kept(workers):
    def read(item):
        for part in range(item % 4):
            time.sleep(0.001 * (5 - item % 5))
            yield item, part

    expected = [(item, part) for item in range(30) for part in range(item % 4)]
    assert list(in_order(range(30), read, workers=workers, buffered=2)) == expected
    assert reading_threads() == []


def test_nothing_to_read():
    assert list(in_order([], lambda item: [item], workers=3)) == []


def test_what_waits_is_bounded():
    made = []

    def read(item):
        for part in range(1_000):
            made.append((item, part))
            yield part

    batches = in_order(range(10), read, workers=2, buffered=3)
    next(batches)
    time.sleep(0.2)
    assert {item for item, _ in made} == {0, 1}
    # One being taken, `buffered` waiting, one in the thread's hands.
    assert len(made) <= 2 * (3 + 2)
    batches.close()
    assert reading_threads() == []


def test_items_are_taken_while_they_are_needed():
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    batches = in_order(items(), lambda item: [item], workers=3)
    assert next(batches) == 0
    assert len(taken) <= 4
    batches.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_out_in_its_place(workers):
    def read(item):
        if item == 2:
            raise ValueError("broken file")
        yield item

    batches = in_order(range(20), read, workers=workers)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(ValueError, match="broken file"):
        next(batches)
    assert reading_threads() == []


def test_an_error_while_planning_ends_the_threads():
    def items():
        yield 1
        raise RuntimeError("bad manifest")

    with pytest.raises(RuntimeError, match="bad manifest"):
        list(in_order(items(), lambda item: iter(lambda: item, None), workers=3))
    assert reading_threads() == []
