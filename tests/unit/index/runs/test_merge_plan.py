"""Merges keep runs few and rewrite an entry seldom."""

from __future__ import annotations

import math
import random

import pytest

from streamlake.index.runs.merge_plan import plan_merges
from streamlake.index.runs.run import RunRef


def run(entries: int) -> RunRef:
    return RunRef("/r", 0, 1, entries, 17 * entries, 0)


def simulate(sizes: list[int], start: tuple[int, ...] = ()) -> tuple[int, float, int]:
    """The most runs at rest beyond log4 of all entries, the entries rewritten per entry added, the most merged at once."""
    runs = [run(size) for size in start]
    most, written, largest = 0.0, 0, 0
    for size in sizes:
        runs.insert(0, run(size))
        count = plan_merges(runs)
        assert count == 0 or 2 <= count <= len(runs)
        if count:
            merged = run(sum(part.entries for part in runs[:count]))
            # Merging a few thousand entries costs nothing, however often.
            written += merged.entries if merged.entries > 16_384 else 0
            largest = max(largest, merged.entries)
            runs[:count] = [merged]
        assert len(runs) == 1 or plan_merges(runs) < 2 or len(runs) < 5
        most = max(most, len(runs) - math.log(max(sum(part.entries for part in runs), 1), 4))
    return most, written / max(sum(sizes), 1), largest


@pytest.mark.parametrize(
    ("sizes", "most_rewritten"),
    [
        ([30_000] * 1000, 6),
        ([1] * 3000, 8),
        ([250_000] * 64, 4),
        ([10 if n % 7 else 200_000 for n in range(700)], 8),
        ([0] * 50, 0),
        (list(range(1, 200_000, 500)), 8),
        (list(range(200_000, 1, -500)), 8),
    ],
)
def test_runs_are_few_and_rewritten_seldom(sizes, most_rewritten):
    most, rewritten, _ = simulate(sizes)
    assert most <= 4
    assert rewritten <= most_rewritten


def test_any_sizes():
    chance = random.Random(5)
    for _ in range(30):
        sizes = [int(10 ** chance.uniform(0, 6)) for _ in range(200)]
        most, rewritten, _ = simulate(sizes)
        assert most <= 4
        assert rewritten <= 12


def test_a_large_run_is_left_alone():
    _, _, largest = simulate([125_000] * 8, start=(10_000_000,))
    assert largest < 1_000_000


def test_nothing_to_merge():
    assert plan_merges([]) == 0
    assert plan_merges([run(5)]) == 0
