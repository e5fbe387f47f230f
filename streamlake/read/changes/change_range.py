"""Which snapshots a range of changes holds: those after one snapshot up to and with another, oldest first.

Invariant: the range is a path of parents without a gap, or an error says how to go on.
"""

from __future__ import annotations

from streamlake.errors import InvalidOptionError
from streamlake.read.snapshot_points import SnapshotPoint, end_snapshot, start_snapshot_id
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table

UNCHANGED = ("replace",)
"""The operations of snapshots that have other files but the same rows, such as compactions."""


def snapshots_between(
    table: Table, from_point: SnapshotPoint | None, to_point: SnapshotPoint | None
) -> tuple[Snapshot, ...]:
    """The snapshots after one (None: from the beginning on) up to another (None: the current one).

    Both are given by id, branch, tag or time. The first may have expired, as long as no snapshot after it
    has. Raises InvalidOptionError when a snapshot is unknown, or the first is no ancestor of the second.
    """
    end = end_snapshot(table, to_point)
    from_id = start_snapshot_id(table, from_point, end)
    if end is None:
        if from_id is not None:
            raise InvalidOptionError(
                f"table {table.name} has no snapshot {from_id}: it has no snapshots at all"
            )
        return ()
    path: list[Snapshot] = []
    oldest_parent: int | None = end.snapshot_id
    for snapshot in table.metadata.ancestors(end.snapshot_id):
        if snapshot.snapshot_id == from_id:
            break
        path.append(snapshot)
        oldest_parent = snapshot.parent_snapshot_id
    if oldest_parent != from_id:
        raise InvalidOptionError(_gap(table, from_id, end, oldest_parent))
    return tuple(reversed(path))


def _gap(table: Table, from_id: int | None, end: Snapshot, oldest_parent: int | None) -> str:
    ways_out = (
        f"start at from_snapshot_id={oldest_parent}, or scan the table as a whole and read the changes from "
        "that snapshot on"
    )
    if from_id is None:
        return (
            f"table {table.name}: the first snapshots before {end.snapshot_id} have expired, so the changes "
            f"since the beginning are not known; {ways_out}"
        )
    begin = table.metadata.snapshot(from_id)
    if begin is None and oldest_parent is not None:
        return (
            f"table {table.name} has no snapshot {from_id}, and the snapshots up to {oldest_parent} have "
            f"expired: what changed in between is not known; {ways_out}"
        )
    if begin is None:
        return (
            f"table {table.name} has no snapshot {from_id}; `streamlake inspect {table.location} snapshots` "
            "lists what there is"
        )
    if any(each.snapshot_id == end.snapshot_id for each in table.metadata.ancestors(from_id)):
        return (
            f"table {table.name}: the range ends before it begins, snapshot {end.snapshot_id} is an ancestor "
            f"of {from_id}; exchange the two"
        )
    return (
        f"table {table.name}: snapshot {from_id} is not an ancestor of snapshot {end.snapshot_id} (it is of "
        "another branch, was rolled back, or snapshots between them have expired); `streamlake inspect "
        f"{table.location} history` shows the lineage, begin at a snapshot that is in it"
    )
