"""Buckets as ranges of the hash space: entries and runs of some buckets -> those of others.

Used where an index is built for a number of buckets, and where that number changes. Invariant: agrees with
`keys.bucket_of`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamlake.index.entries import Entries
from streamlake.index.lookup import Live
from streamlake.index.merge import merge_runs
from streamlake.index.run import Run
from streamlake.index.run_writer import RunRef, RunWriter


def hash_range(bucket: int, buckets: int) -> tuple[int, int]:
    """The lowest and the highest hash of `bucket`."""
    low, high = (-(-(number << 32) // buckets) << 32 for number in (bucket, bucket + 1))
    return low, high - 1


def split_by_bucket(entries: Entries, buckets: int) -> list[Entries]:
    """The entries of each of `buckets`, sharing memory with `entries`."""
    lows = np.array([hash_range(bucket, buckets)[0] for bucket in range(buckets)], dtype=np.uint64)
    cuts = np.append(np.searchsorted(entries.keys.hashes, lows), len(entries)).tolist()
    return [entries.slice(cuts[bucket], cuts[bucket + 1]) for bucket in range(buckets)]


def overlapping(bucket: int, buckets: int, old_buckets: int) -> range:
    """Which of `old_buckets` hold hashes of `bucket` of `buckets`."""
    low, high = hash_range(bucket, buckets)
    first, last = ((hash_ >> 32) * old_buckets >> 32 for hash_ in (low, high))
    return range(first, last + 1)


def rebucket(
    runs: Mapping[int, Sequence[Run | Entries]],
    live: Live,
    writer: RunWriter,
    bucket: int,
    buckets: int,
    *,
    drop_tombstones_before_ms: int | None = None,
) -> RunRef:
    """Write the run of `bucket` of `buckets` from all `runs`, newest first, of the old buckets that overlap it.

    Its data files are no longer own, because their rows are now spread over buckets. Arguments and errors as of
    `merge.merge_runs`; each new bucket can be written by a task of its own.
    """
    return merge_runs(
        [run for old in sorted(runs) for run in runs[old]],
        live,
        writer,
        is_oldest=True,
        drop_tombstones_before_ms=drop_tombstones_before_ms,
        hashes=hash_range(bucket, buckets),
        keep_own=False,
    )
