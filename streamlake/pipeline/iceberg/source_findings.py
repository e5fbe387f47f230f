"""What is wrong between a stream's position and the table that it reads, in words, with the ways out.

Each function only words one error; none reads anything. Invariant: a stream never passes over rows by itself;
only a person chooses a way out.
"""

from __future__ import annotations

from streamlake.errors import LineageError
from streamlake.source.iceberg.table_offset import SnapshotPosition
from streamlake.spec.metadata.snapshot import Snapshot

_ANEW = (
    "start anew, with a new checkpoint directory and starting-strategy=table-scan-then-incremental, which "
    "reads "
    "the table as it is now (into a new table, or one that is upserted into: rows that were read before come "
    "again)"
)


def _said(found: str, *ways: str) -> LineageError:
    numbered = "; ".join(f"({number}) {way}" for number, way in enumerate(ways, 1))
    return LineageError(f"{found}. Nothing was read beyond that. Take one of these ways out: {numbered}")


def expired(table: str, position: SnapshotPosition, oldest: Snapshot, lost: int) -> LineageError:
    """Snapshots that were due are gone; `oldest` is the first one after them that is still there."""
    return _said(
        f"table {table}: {_read_up_to(position)}, and what was committed next has expired: the oldest "
        f"snapshot "
        f"that is left is {oldest.snapshot_id}, so that {_snapshots(lost)} can no longer be read",
        _ANEW,
        "go on with what is left: fail-on-data-loss=false leaves those snapshots out once, and logs how many "
        "they are",
        "let expiry keep snapshots for longer than the stream lags behind "
        "(history.expire.max-snapshot-age-ms)",
    )


def replay_expired(table: str, snapshot_id: int | None) -> LineageError:
    """A micro-batch that was planned before is to run again, and a snapshot of it is gone."""
    return _said(
        f"table {table}: snapshot {snapshot_id}, of which the last micro-batch reads and which has to run "
        f"again, "
        "has expired",
        _ANEW,
        "restore the metadata file of the table that still has the snapshot, if its files are still there",
        "let expiry keep snapshots for longer than the stream lags behind "
        "(history.expire.max-snapshot-age-ms)",
    )


def rolled_back(table: str, branch: str, position: SnapshotPosition, head: Snapshot) -> LineageError:
    """The branch is at a snapshot that comes before the one that was read last."""
    return _said(
        f"table {table}: {_read_up_to(position)}, but branch {branch} was rolled back to snapshot "
        f"{head.snapshot_id}, which comes before it. What was read of the snapshots in between is no "
        f"longer in "
        "the table",
        f"roll the branch forward again (ManageRefs(table).set_branch('{branch}', "
        f"{position.snapshot_id})), and "
        "the stream goes on",
        _ANEW,
        "keep what was read of them: new checkpoint directory, "
        "starting-strategy=incremental-from-latest-snapshot-exclusive before the next commit to the table",
    )


def diverged(
    table: str, branch: str, position: SnapshotPosition, common: Snapshot, following: Snapshot
) -> LineageError:
    """The branch went another way after `common`; `following` is its first snapshot after it."""
    return _said(
        f"table {table}: {_read_up_to(position)}, but branch {branch} no longer has that snapshot: it was "
        f"rolled "
        f"back to snapshot {common.snapshot_id} and written anew from there, or set to another branch",
        f"point the branch at a descendant of snapshot {position.snapshot_id} again, and the stream goes on",
        "go on with the branch as it is: new checkpoint directory, start-snapshot-id="
        f"{following.snapshot_id}; what was read of the snapshots that were undone stays in the target",
        _ANEW,
    )


def unrelated(table: str, branch: str, position: SnapshotPosition) -> LineageError:
    """The branch's history begins after the position, which is no part of it."""
    return _said(
        f"table {table}: {_read_up_to(position)}, but branch {branch} now has a history of its own, "
        f"without that "
        "snapshot: the table was replaced (CREATE OR REPLACE), or the branch was set to another one",
        "point the branch at a descendant of the snapshot again, and the stream goes on",
        "read the new history from its beginning: new checkpoint directory, "
        "starting-strategy=incremental-from-earliest-snapshot; what was read before stays in the target",
        _ANEW,
    )


def emptied(table: str, branch: str, position: SnapshotPosition) -> LineageError:
    """The branch is gone, or main has no snapshot any more."""
    return _said(
        f"table {table}: {_read_up_to(position)}, but branch {branch} has no snapshot any more: it was "
        f"removed, "
        "or the table was replaced by an empty one",
        f"restore the branch (ManageRefs(table).create_branch, or set_branch, at snapshot "
        f"{position.snapshot_id})",
        _ANEW,
    )


def replaced(table: str, before: str, now: str) -> LineageError:
    """Another table is where the one that was read was."""
    return _said(
        f"table {table}: the stream has read the table with uuid {before}, and this one has {now}: it was "
        "dropped and created anew, or another table has its name",
        "restore the old table",
        "read the new one from its beginning: new checkpoint directory (what was read of the old table "
        "stays in "
        "the target)",
    )


def undone(table: str, snapshot: Snapshot) -> LineageError:
    """A snapshot deletes or overwrites rows, which a stream of appended rows cannot show."""
    summary = snapshot.summary
    return _said(
        f"table {table}: snapshot {snapshot.snapshot_id} is "
        f"{'of no known operation' if snapshot.operation is None else f'an {snapshot.operation!r}'} "
        f"(added-records={summary.get('added-records', 0)}, "
        f"deleted-records={summary.get('deleted-records', 0)}, "
        f"added-delete-files={summary.get('added-delete-files', 0)}), and read-mode=append shows appended "
        f"rows "
        "only",
        "read deletes as changes: read-mode=changes",
        "pass over such snapshots, with all that they add: on-delete=skip",
        _ANEW,
    )


def other_filter(table: str) -> LineageError:
    """A micro-batch that was planned with one filter is to run again with another one."""
    return _said(
        f"table {table}: the last micro-batch was planned with another filter (or another case-sensitive), "
        f"and "
        "has to run again: it would read other rows than it began with",
        "start the stream with the old filter until that micro-batch is done (trigger availableNow), then "
        "change it",
        "start anew with a new checkpoint directory",
    )


def other_mode(table: str, before: str, now: str) -> LineageError:
    """A snapshot was begun in one read mode and would be finished in another."""
    return _said(
        f"table {table}: the stream is in the middle of a snapshot that it reads with read-mode={before}, "
        f"and "
        f"this start has read-mode={now}",
        f"start the stream with read-mode={before} until the snapshot is read, then change it",
        "start anew with a new checkpoint directory",
    )


def _read_up_to(position: SnapshotPosition) -> str:
    if position.snapshot_id is None:
        return "the stream began before the table's first snapshot"
    if position.within is not None:
        return f"the stream is in the middle of snapshot {position.snapshot_id}"
    return f"the stream has read everything up to snapshot {position.snapshot_id}"


def _snapshots(count: int) -> str:
    return "one snapshot or more" if count <= 1 else f"{count} snapshots"
