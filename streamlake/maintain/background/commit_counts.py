"""What commits have left in a table, counted from the commits themselves.

Place in the flow: the stream counts each of its commits, from the metadata that it has in memory; nothing is
read for it. Invariant: pure values, so that what is due can be tested with any clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.maintain.background.maintenance_settings import Schedule
from streamlake.maintain.care import SMALL_SHARE, target_file_size
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata


@dataclass(frozen=True)
class CommitCounts:
    """What was left since an action ran last, at `since` (seconds of the monotonic clock)."""

    since: float
    commits: int = 0
    data_files: int = 0
    bytes: int = 0
    pos_delete_files: int = 0
    eq_delete_files: int = 0

    def plus(self, snapshot: Snapshot) -> CommitCounts:
        """With one more commit, as its summary says."""
        summary = snapshot.summary
        return CommitCounts(
            self.since,
            self.commits + 1,
            self.data_files + _number(summary, "added-data-files"),
            self.bytes + _number(summary, "added-files-size"),
            self.pos_delete_files
            + _number(summary, "added-position-delete-files")
            + _number(summary, "added-dvs"),
            self.eq_delete_files + _number(summary, "added-equality-delete-files"),
        )

    def is_due(self, schedule: Schedule, now: float) -> bool:
        """Whether an action with this schedule is due. Without a commit none is."""
        wanted = (
            (schedule.commit_count, self.commits),
            (schedule.data_file_count, self.data_files),
            (schedule.data_file_size, self.bytes),
            (schedule.pos_delete_file_count, self.pos_delete_files),
            (schedule.eq_delete_file_count, self.eq_delete_files),
            (schedule.interval_second, now - self.since),
        )
        return self.commits > 0 and any(limit is not None and count >= limit for limit, count in wanted)


def counts_at_first(metadata: TableMetadata, branch: str, now: float) -> CommitCounts:
    """What an earlier stream may have left: all of the table, where its data files are small.

    So a stream that is started again and again does not count from nothing each time.
    """
    head = metadata.head(branch)
    if head is None:
        return CommitCounts(now)
    summary = head.summary
    files, size = _number(summary, "total-data-files"), _number(summary, "total-files-size")
    are_small = size * SMALL_SHARE < target_file_size(metadata.properties) * files
    has_equality = _number(summary, "total-equality-deletes") > 0
    deletes = _number(summary, "total-delete-files")
    return CommitCounts(
        now,
        len(metadata.snapshots),
        files if are_small else 0,
        0,
        0 if has_equality else deletes,
        deletes if has_equality else 0,
    )


def _number(summary: Mapping[str, str], name: str) -> int:
    try:
        return int(summary.get(name, 0))
    except ValueError:
        return 0
