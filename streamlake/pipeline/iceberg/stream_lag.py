"""How far a stream is behind the table that it reads, from snapshots' summaries alone."""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.source.iceberg.table_offset import SnapshotPosition
from streamlake.spec.metadata.snapshot import Snapshot

_CHANGED_FILES = ("added-data-files", "added-delete-files", "deleted-data-files")
_CHANGED_ROWS = ("added-records", "deleted-records", "added-position-deletes", "added-equality-deletes")


@dataclass(frozen=True)
class StreamLag:
    """What a stream has not read yet. A snapshot that is half read counts in full.

    `seconds` is the time from the commit of the last snapshot that was read to that of the newest one; None
    where the former is not known any more. `files` and `rows` are those that appends added, of changes those
    that any snapshot added or removed, and all of a snapshot that is read in full; where a summary does not
    say, 0.
    """

    snapshots: int = 0
    files: int = 0
    rows: int = 0
    seconds: float | None = 0.0

    @property
    def is_none(self) -> bool:
        """Whether everything is read."""
        return self.snapshots == 0


def lag_of(
    position: SnapshotPosition, read: Snapshot | None, path: list[Snapshot], *, changes: bool = False
) -> StreamLag:
    """The lag at a position, with the snapshots that are left; `read` is the last one that was read in full,
    `changes` whether they are read as changes.
    """
    if not path:
        return StreamLag()
    files = rows = 0
    for snapshot in path:
        if position.is_scan and snapshot.snapshot_id == position.snapshot_id:
            files += _number(snapshot, "total-data-files")
            rows += _number(snapshot, "total-records")
        elif changes and snapshot.operation != "replace":
            files += sum(_number(snapshot, key) for key in _CHANGED_FILES)
            rows += sum(_number(snapshot, key) for key in _CHANGED_ROWS)
        elif snapshot.operation == "append":
            files += _number(snapshot, "added-data-files")
            rows += _number(snapshot, "added-records")
    since = None if read is None else (path[-1].timestamp_ms - read.timestamp_ms) / 1000
    return StreamLag(len(path), files, rows, since)


def _number(snapshot: Snapshot, key: str) -> int:
    text = snapshot.summary.get(key, "0")
    return int(text) if text.isdigit() else 0
