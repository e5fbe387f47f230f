"""Bulk processing of many records of which a few fail, in linear time.

Used where records are decoded and where rows are checked. Spans of records are processed in bulk. A span that
fails names one record, which is rejected, and the rest is tried again. The next span is as long as the last
stretch without a failure, and doubles after each success. So a failure costs as much as the distance between
two failures, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SHORTEST = 4


class SpanError(Exception):
    """The record at offset `at` of a span fails for the given reason; others of the span may fail as well."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(at, reason)
        self.at = at
        self.reason = reason


def sifted(
    count: int, attempt: Callable[[int, int], T], reject: Callable[[int, str], None]
) -> list[tuple[int, int, T]]:
    """The results of `attempt(low, high)` for ascending spans of `count` records, without the failing ones.

    `attempt` raises SpanError for a failing record. `reject` is called with the position of each failing
    record, in any order, and its reason. An error that `reject` raises ends the work.
    """
    done: list[tuple[int, int, T]] = []
    waiting = [(0, count)]
    size = max(count, 1)
    while waiting:
        low, high = waiting.pop()
        if high == low and count:
            continue
        if high - low > size:
            waiting.append((low + size, high))
            high = low + size
        try:
            done.append((low, high, attempt(low, high)))
        except SpanError as error:
            at = low + error.at
            if not low <= at < high:
                raise AssertionError(f"record {at} is said to fail in the span {low} to {high}") from error
            reject(at, error.reason)
            waiting += [(at + 1, high), (low, at)]
            size = max(_SHORTEST, error.at)
        else:
            size = max(2 * size, _SHORTEST)
    return done
