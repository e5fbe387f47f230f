"""Plans merges: which runs to merge now, by size tiers, so that runs stay few and a key is seldom rewritten.

Called by a writer task after each checkpoint. Invariant: a run is only merged with newer runs that together
are at least about as large as itself, so the number of times that an entry is rewritten grows with the
logarithm of the bucket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamlake.index.runs.run_writer import RunRef

GROWTH = 3
"""A run is merged when the newer ones together have this many times its entries."""
MOST_MAPS = 16
"""A run with about so many position maps is merged, because every look-up goes through them. Not all buckets
get there with the same compaction.
"""
_BUCKETS_APART = 8
_STRETCHES = 2
"""So is one whose maps have more than this many times the entries of all buckets."""
_LEAST_ENTRIES = 4096
_MOST_BEYOND_LOGARITHM = 4


def plan_merges(runs: Sequence[RunRef]) -> int:
    """How many of the newest of `runs` (newest first) to merge into one now; 1: write the newest one again.

    Small runs count as if they had some thousand entries. At most 4 + log4(all entries) runs remain.
    """
    sizes = [max(run.entries, _LEAST_ENTRIES) for run in runs]
    most_stretches = _STRETCHES * max(sum(run.entries * run.buckets for run in runs), _LEAST_ENTRIES)
    newer, merged = 0, 0
    for at, size in enumerate(sizes):
        if (at and newer >= GROWTH * size) or _has_many_maps(runs[at], most_stretches):
            merged = at + 1
        newer += size
    most = _MOST_BEYOND_LOGARITHM + int(math.log(max(sum(run.entries for run in runs), 1), 4))
    if len(runs) - max(merged - 1, 0) > most:
        merged = len(runs) - most + 1
    return merged


def _has_many_maps(run: RunRef, most_stretches: int) -> bool:
    if len(run.maps) >= MOST_MAPS + run.bucket % _BUCKETS_APART:
        return True
    return sum(each.stretches for each in run.maps) > most_stretches
