"""Reading ahead: order, errors, and the end of the thread behind it."""

from __future__ import annotations

import threading
import time

import pytest

from streamlake.ahead import read_ahead
from tests.helpers.processes import wait_until


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "streamlake-read-ahead"]


def numbers(count: int, made: list[int], closed: list[bool], fail_at: int | None = None):
    def make(stopped):
        try:
            for number in range(count):
                if number == fail_at:
                    raise ValueError(f"at {number}")
                made.append(number)
                yield number
        finally:
            closed.append(True)

    return make


def test_items_come_in_order_and_the_thread_ends():
    made: list[int] = []
    closed: list[bool] = []
    assert list(read_ahead(numbers(100, made, closed))) == list(range(100))
    assert closed == [True]
    assert not threads()


def test_the_next_item_is_made_while_one_is_used_and_no_more_than_that():
    made: list[int] = []
    items = read_ahead(numbers(100, made, []))
    assert next(items) == 0
    wait_until(
        lambda: len(made) == 3, 5, "three items"
    )  # one in use, one that lies ready, one that waits for its place
    time.sleep(0.05)
    assert made == [0, 1, 2]
    assert next(items) == 1
    wait_until(lambda: len(made) == 4, 5, "the fourth item")
    items.close()
    assert not threads()


def test_an_error_comes_after_the_items_before_it():
    closed: list[bool] = []
    items = read_ahead(numbers(100, [], closed, fail_at=5))
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="at 5"):
        next(items)
    assert closed == [True]
    assert not threads()


def test_who_stops_early_closes_the_maker():
    closed: list[bool] = []

    def fail_at(number: int) -> None:
        for item in read_ahead(numbers(100, [], closed)):
            if item == number:
                raise KeyError

    with pytest.raises(KeyError):
        fail_at(3)
    assert closed == [True]
    assert not threads()


def test_a_maker_that_waits_is_told_to_stop():
    def make(stopped):
        yield 1
        while not stopped():
            time.sleep(0.01)

    items = read_ahead(make)
    assert next(items) == 1
    items.close()
    assert not threads()
