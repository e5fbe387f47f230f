"""Sifting: every good record in order, every failing one told, and work that grows with the records, not with their square."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.formats.arrow.sifting import SpanError, sifted


def sift(bad, count, *, last=False):
    """(good places in order, failing places, records that were tried); `last`: a span tells its last failing record."""
    tried = []

    def attempt(low, high):
        tried.append(high - low)
        failing = [at for at in range(low, high) if at in bad]
        if failing:
            raise SpanError(failing[-1 if last else 0] - low, f"{failing[-1 if last else 0]} is bad")
        return list(range(low, high))

    rejected = []
    parts = sifted(count, attempt, lambda at, reason: rejected.append((at, reason)))
    assert all(part == list(range(low, high)) for low, high, part in parts)
    assert all(reason == f"{at} is bad" for at, reason in rejected)
    return [at for _, _, part in parts for at in part], [at for at, _ in rejected], tried


@given(st.integers(0, 60), st.sets(st.integers(0, 59)), st.booleans())
def test_good_and_failing_records_are_told_apart(count, bad, last):
    bad = {at for at in bad if at < count}
    good, rejected, _ = sift(bad, count, last=last)
    assert good == [at for at in range(count) if at not in bad]
    assert sorted(rejected) == sorted(bad)


def test_no_record_at_all_is_tried_once():
    assert sift(set(), 0) == ([], [], [0])


@pytest.mark.parametrize("every", [1, 2, 10, 100, 1000])
def test_the_work_is_linear(every):
    count = 20_000
    _, rejected, tried = sift(set(range(0, count, every)), count)
    assert len(rejected) == len(range(0, count, every))
    assert sum(tried) < 6 * count
    assert len(tried) < 6 * len(rejected) + 20


def test_what_reject_raises_ends_the_work():
    def attempt(low, high):
        raise SpanError(0, "bad")

    def enough(at, reason):
        raise OverflowError(at)

    with pytest.raises(OverflowError):
        sifted(5, attempt, enough)
