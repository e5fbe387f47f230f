"""The changes of the snapshots that a stream is reading with read-mode=changes, and how they are cut.

A first scan, and a snapshot that only appends data files, are read by parts of files, and a micro-batch may
end within them. What any other snapshot removed and added is read in one micro-batch, because rows are
paired. Everything depends on the snapshot's own manifests and on what the offset holds, so a replay plans the
same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from streamlake.pipeline.iceberg.planned_parts import PlannedParts, SnapshotShare
from streamlake.pipeline.iceberg.source_table import SourceTable
from streamlake.read.changes.change_planning import ChangePlanner
from streamlake.read.changes.change_splits import (
    ROWS_PAIRED_AT_ONCE,
    AddedPart,
    ChangePiece,
    netted_pieces,
    pieces_of,
)
from streamlake.read.changes.change_tasks import ChangedSnapshot, SnapshotChanges
from streamlake.source.iceberg.table_offset import SplitPlanning
from streamlake.spec.metadata.snapshot import Snapshot

_KEPT_SNAPSHOTS = 64


class PlannedChanges:
    """Plans the changes of one stream's snapshots. Not thread-safe."""

    def __init__(self, table: SourceTable, parts: PlannedParts) -> None:
        self._table = table
        self._parts = parts
        self._planner: tuple[object, ChangePlanner] | None = None
        self._planned: dict[int, SnapshotChanges] = {}

    def is_cut(self, snapshot: Snapshot, planning: SplitPlanning) -> bool:
        """Whether a micro-batch may end within a snapshot."""
        if planning.pairing.is_net or snapshot.operation != "append":
            return False
        manifests = self._table.table.manifests(snapshot)
        return self._planner_of(planning).only_appends(_changed(snapshot, 0), manifests)

    def of(self, snapshot: Snapshot, planning: SplitPlanning) -> SnapshotChanges:
        """What a snapshot changed; it is kept until its pieces are taken."""
        found = self._planned[snapshot.snapshot_id] = self._taken(_changed(snapshot, 0), snapshot, planning)
        while len(self._planned) > _KEPT_SNAPSHOTS:
            del self._planned[next(iter(self._planned))]
        return found

    def pieces(
        self, shares: Iterator[SnapshotShare], planning: SplitPlanning, ordinal: int
    ) -> Iterator[ChangePiece]:
        """The pieces of a micro-batch; `ordinal` is the number of its first snapshot in the stream."""
        rows_in_memory = ROWS_PAIRED_AT_ONCE if self._table.change_columns(planning).parted_by else None
        netted: list[SnapshotChanges] = []
        for at, share in enumerate(shares, ordinal):
            snapshot = _changed(share.snapshot, at)
            if share.is_resumed or self.is_cut(share.snapshot, planning):
                for part in self._parts.within(share, planning):
                    yield AddedPart(snapshot, part)
                continue
            changes = self._taken(snapshot, share.snapshot, planning)
            if planning.pairing.is_net:
                netted.append(changes)
            else:
                yield from pieces_of(changes, rows_in_memory)
        yield from netted_pieces(netted, rows_in_memory)

    def clear(self) -> None:
        """Drop what is kept of snapshots."""
        self._planned.clear()

    def _taken(
        self, changed: ChangedSnapshot, snapshot: Snapshot, planning: SplitPlanning
    ) -> SnapshotChanges:
        planner = self._planner_of(planning)
        found = self._planned.pop(snapshot.snapshot_id, None)
        if found is not None:
            return replace(found, snapshot=changed)
        return planner.of(changed, self._table.table.manifests(snapshot))

    def _planner_of(self, planning: SplitPlanning) -> ChangePlanner:
        """The planner, which goes on from snapshot to snapshot as long as the table's specs are the same."""
        table = self._table.table
        schema = self._table.schema(planning)
        key = (schema, planning.filter_digest, frozenset(table.specs))
        if self._planner is None or self._planner[0] != key:
            readers = self._table.source.settings.plan_parallelism
            planner = ChangePlanner(table.io, table.specs, schema, self._table.filter(planning), readers)
            self._planner = (key, planner)
            self._planned.clear()
        return self._planner[1]


def _changed(snapshot: Snapshot, ordinal: int) -> ChangedSnapshot:
    return ChangedSnapshot(snapshot.snapshot_id, snapshot.sequence_number, ordinal)
