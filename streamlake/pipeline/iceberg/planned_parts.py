"""The file parts of the snapshots that a stream is reading, kept between the calls that need them.

Invariant: what is kept only saves planning. From one position the same parts follow without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamlake.pipeline.iceberg.snapshot_parts import NumberedPart, SnapshotParts
from streamlake.pipeline.iceberg.source_table import SourceTable
from streamlake.read.splits.data_file_parts import FilePart
from streamlake.read.splits.numbered_files import SnapshotFiles
from streamlake.source.iceberg.table_offset import FilePosition, SnapshotPosition, SplitPlanning
from streamlake.spec.metadata.snapshot import Snapshot

_KEPT_SNAPSHOTS = 4


@dataclass(frozen=True)
class SnapshotShare:
    """What one micro-batch reads of one snapshot: from `first` up to, not including, `until` (None: its end).

    `is_scan`: the snapshot is read in full, and not only what it added. `is_resumed`: a part of it was read
    before, or it is scanned. Positions count the files of the snapshot.
    """

    snapshot: Snapshot
    is_scan: bool
    is_resumed: bool
    first: FilePosition
    until: FilePosition | None = None


class PlannedParts:
    """Plans the parts of files of one stream's snapshots. Not thread-safe."""

    def __init__(self, table: SourceTable) -> None:
        self._table = table
        self._parts: dict[tuple[int, bool, SplitPlanning], SnapshotParts] = {}

    def since(self, share: SnapshotShare, planning: SplitPlanning) -> Iterator[NumberedPart]:
        """The parts of a snapshot from where a share of it begins, whatever its end, with their positions."""
        return self._of(share, planning).since(share.first)

    def within(self, share: SnapshotShare, planning: SplitPlanning) -> Iterator[FilePart]:
        """The parts of a share."""
        for numbered in self.since(share, planning):
            if share.until is not None and numbered.at >= share.until:
                break
            yield numbered.part

    def forget_before(self, position: SnapshotPosition) -> None:
        """Drop what was planned of snapshots other than the one that is half read, and what was read of
        it.
        """
        for key in list(self._parts):
            if position.within is None or key[0] != position.snapshot_id:
                del self._parts[key]
            else:
                self._parts[key].forget(position.within)

    def clear(self) -> None:
        """Drop everything."""
        self._parts.clear()

    def _of(self, share: SnapshotShare, planning: SplitPlanning) -> SnapshotParts:
        snapshot = share.snapshot
        key = (snapshot.snapshot_id, share.is_scan, planning)
        known = self._parts.pop(key, None)
        if known is None or not known.has(share.first):
            table = self._table.table
            files = SnapshotFiles(
                table.io,
                table.specs,
                table.manifests(snapshot),
                self._table.filter(planning),
                None if share.is_scan else snapshot.snapshot_id,
                self._table.ordering(planning),
                self._table.source.settings.plan_parallelism,
            )
            known = SnapshotParts(files, planning.split_size, share.first)
        self._parts[key] = known
        while len(self._parts) > _KEPT_SNAPSHOTS:
            del self._parts[next(iter(self._parts))]
        return known
