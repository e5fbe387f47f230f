"""The way from a stream's position to the end of a branch: which snapshots come next, oldest first.

Walks parents in the table's metadata; reads no files. Invariant: the snapshots that it returns are all that
there were between the two, without a gap. Where that is not sure it raises, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from streamlake.errors import LineageError
from streamlake.pipeline.iceberg import source_findings
from streamlake.source.iceberg.table_offset import SnapshotPosition
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata


class Gap(NamedTuple):
    """Snapshots after a position have expired: `lost` of them or more, up to `oldest`, the first that is
    left.
    """

    oldest: Snapshot
    lost: int


@dataclass(frozen=True)
class Lineage:
    """The history of one branch of a table, as its metadata has it now."""

    table: str
    branch: str
    metadata: TableMetadata

    def path(self, position: SnapshotPosition, end: Snapshot | None) -> list[Snapshot]:
        """The snapshots after a position up to `end`, oldest first.

        The position's own snapshot comes first if it is half read. `end` None: the branch has no snapshot.
        Raises LineageError where the way from the position to the end is broken.
        """
        if end is None:
            if position.snapshot_id is None:
                return []
            raise source_findings.emptied(self.table, self.branch, position)
        found, is_connected = self._walked(position, end)
        if is_connected:
            return found
        why = self._why(position, end, found)
        if isinstance(why, Gap):
            raise source_findings.expired(self.table, position, why.oldest, why.lost)
        raise why

    def gap(self, position: SnapshotPosition, end: Snapshot | None) -> Gap | None:
        """What has expired between a position and `end`, where nothing else is wrong with the way."""
        if end is None:
            return None
        found, is_connected = self._walked(position, end)
        why = None if is_connected else self._why(position, end, found)
        return why if isinstance(why, Gap) else None

    def between(self, start: SnapshotPosition, end: SnapshotPosition) -> list[Snapshot]:
        """The snapshots of a micro-batch that was planned before: after `start` up to `end`, oldest first."""
        if start == end or (end.snapshot_id is None and start.snapshot_id is None):
            return []
        last = None if end.snapshot_id is None else self.metadata.snapshot(end.snapshot_id)
        if last is None:
            raise source_findings.replay_expired(self.table, end.snapshot_id)
        found, is_connected = self._walked(start, last)
        if not is_connected:
            gone = found[0].parent_snapshot_id if found else start.snapshot_id
            raise source_findings.replay_expired(self.table, gone)
        return found

    def is_before(self, snapshot_id: int, of: int) -> bool:
        """Whether a snapshot comes before the snapshot `of`, as far as its history has not expired."""
        return any(each.snapshot_id == snapshot_id != of for each in self.metadata.ancestors(of))

    def _walked(self, position: SnapshotPosition, end: Snapshot) -> tuple[list[Snapshot], bool]:
        """The snapshots back from `end`, oldest first, and whether the position was met."""
        found: list[Snapshot] = []
        for snapshot in self.metadata.ancestors(end.snapshot_id):
            if snapshot.snapshot_id == position.snapshot_id:
                found += [snapshot] if position.within is not None else []
                return found[::-1], True
            found.append(snapshot)
        # The oldest one's parent is still named when it has expired.
        is_next = position.within is None and found[-1].parent_snapshot_id == position.snapshot_id
        return found[::-1], is_next

    def _why(self, position: SnapshotPosition, end: Snapshot, found: list[Snapshot]) -> LineageError | Gap:
        """Why the walk back from `end`, which found these snapshots, did not meet the position."""
        known = None if position.snapshot_id is None else self.metadata.snapshot(position.snapshot_id)
        if known is not None:
            own = {each.snapshot_id for each in self.metadata.ancestors(known.snapshot_id)}
            if end.snapshot_id in own:
                return source_findings.rolled_back(self.table, self.branch, position, end)
            for older, newer in pairwise(found):
                if older.snapshot_id in own and newer.snapshot_id not in own:
                    return source_findings.diverged(self.table, self.branch, position, older, newer)
        oldest = found[0]
        if oldest.parent_snapshot_id is None and position.snapshot_id is not None:
            return source_findings.unrelated(self.table, self.branch, position)
        before = 0 if position.snapshot_id is None else position.sequence_number
        return Gap(oldest, 1 if before is None else max(1, oldest.sequence_number - before - 1))
