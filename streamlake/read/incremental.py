"""Incremental scan: rows appended between two snapshots (from exclusive, to inclusive).

Only files added by append snapshots are read, once each. Snapshots that compact (`replace`) change no rows
and are skipped. An `overwrite` or `delete` snapshot in between removed or changed rows, which an append scan
cannot show. It is an error unless `skip_overwrites` is set; Iceberg's incremental append scan always skips
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.read.planning import FileScanTask, ScanPlanner, read_manifests
from streamlake.read.scan import Filter, Scan
from streamlake.read.snapshot_points import SnapshotPoint, end_snapshot, start_snapshot_id
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table

_HARMLESS = ("replace",)


class IncrementalAppendScan(Scan):
    """The rows appended after one snapshot up to another, read with the table's current schema.

    `schema_id` names another one. The range is `from_snapshot_id` (None: since the table's beginning) to
    `to_snapshot_id` (None: the current snapshot). Both take an id, the name of a branch or tag, or a time (a
    datetime or date, or ISO text, UTC unless it says otherwise): rows that were appended after the first
    time, up to the second. Raises InvalidOptionError when a snapshot is unknown or the first is not an
    ancestor of the second, and FeatureUnsupportedError when rows were overwritten or deleted in between,
    unless `skip_overwrites`.
    """

    def __init__(
        self,
        table: Table,
        from_snapshot_id: SnapshotPoint | None = None,
        to_snapshot_id: SnapshotPoint | None = None,
        filter: Filter = None,
        columns: Iterable[str] | None = None,
        *,
        skip_overwrites: bool = False,
        schema_id: int | None = None,
    ) -> None:
        schema = table.schema if schema_id is None else table.metadata.schema_by_id(schema_id)
        super().__init__(table, schema, filter, columns)
        end = end_snapshot(table, to_snapshot_id)
        start_id = start_snapshot_id(table, from_snapshot_id, end)
        self.snapshots = tuple(_appends_between(table, start_id, end, skip_overwrites))

    def plan_files(self) -> Iterator[FileScanTask]:
        """The added files to read, oldest snapshot first."""
        planner = ScanPlanner(self.table.io, self.table.specs, self._bound)
        ids = {snapshot.snapshot_id for snapshot in self.snapshots}
        manifests = [manifest for manifest in self._manifests(ids) if planner.may_match(manifest)]
        for entries in read_manifests(
            self.table.io, manifests, self.table.specs, with_stats=self._bound != TRUE
        ):
            for entry in entries:
                if entry.status == EntryStatus.ADDED and entry.snapshot_id in ids:
                    task = planner.task(entry)
                    if task is not None:
                        yield task

    def _manifests(self, ids: set[int]) -> Iterator[ManifestFile]:
        """Data manifests added by one of the snapshots, oldest snapshot first, each once."""
        seen: set[str] = set()
        for snapshot in self.snapshots:
            for manifest in self.table.manifests(snapshot):
                if manifest.content != ManifestContent.DATA or manifest.manifest_path in seen:
                    continue
                if manifest.added_snapshot_id is None or manifest.added_snapshot_id in ids:
                    seen.add(manifest.manifest_path)
                    yield manifest


def _appends_between(
    table: Table, from_id: int | None, end: Snapshot | None, skip_overwrites: bool
) -> Iterator[Snapshot]:
    """The append snapshots after `from_id` up to `end`, oldest first."""
    if end is None or end.snapshot_id == from_id:
        if end is None and from_id is not None:
            raise InvalidOptionError(
                f"table {table.name} has no snapshot {from_id}: it has no snapshots at all"
            )
        return
    path: list[Snapshot] = []
    oldest_parent: int | None = end.snapshot_id
    for snapshot in table.metadata.ancestors(end.snapshot_id):
        if snapshot.snapshot_id == from_id:
            break
        path.append(snapshot)
        oldest_parent = snapshot.parent_snapshot_id
    if oldest_parent != from_id:
        if from_id is None:
            raise InvalidOptionError(
                f"table {table.name}: the first snapshots before {end.snapshot_id} have expired, so what was "
                f"appended since the beginning is not known; start at from_snapshot_id={oldest_parent}, or "
                "scan the table"
            )
        if any(each.snapshot_id == end.snapshot_id for each in table.metadata.ancestors(from_id)):
            raise InvalidOptionError(
                f"table {table.name}: the range ends before it begins, snapshot {end.snapshot_id} is an "
                f"ancestor of {from_id}; exchange the two"
            )
        raise InvalidOptionError(
            f"table {table.name}: snapshot {from_id} is not an ancestor of snapshot {end.snapshot_id} (or "
            f"the snapshots between them have expired); `streamlake inspect {table.location} history` shows "
            "the lineage"
        )
    for snapshot in reversed(path):
        if snapshot.operation == "append":
            yield snapshot
        elif snapshot.operation not in _HARMLESS and not skip_overwrites:
            raise FeatureUnsupportedError(
                f"table {table.name}: snapshot {snapshot.snapshot_id} is an {snapshot.operation!r}, and an "
                "incremental append scan shows appended rows only; scan up to the snapshot before it, scan "
                "the table as a whole, or pass skip_overwrites=True to leave such snapshots out"
            )
