"""The data files that a key index covers, and how compactions change them.

Place in the flow: between finding an index and reading what it lacks. A compaction of streamlake leaves a
position map, by which the index goes on without its new files being read. Where there is none, or one that
cannot be used, they are read like files of any other writer. Invariant: every live row of a covered file that
a key can find is in the index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamlake.commit.marker import POSITION_MAP
from streamlake.errors import IndexDamagedError, MissingFileError
from streamlake.index.runs.position_map_file import MapFile, open_position_map
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.state import IndexState
from streamlake.read.planning import FileScanTask, ScanPlanner
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table

_LOG = logging.getLogger(__name__)

WithRows = Callable[[IndexState, Sequence[FileScanTask]], IndexState]
"""Reads the rows of data files into an index."""


@dataclass(frozen=True)
class Covered:
    """An index, and the paths of the data files that it covers, of snapshot `snapshot_id` (None: none)."""

    state: IndexState
    files: frozenset[str] = frozenset()
    snapshot_id: int | None = None

    def through_compactions(
        self, table: Table, head: Snapshot | None, tasks: Mapping[str, FileScanTask], with_rows: WithRows
    ) -> Covered:
        """The index after the compactions between its snapshot and `head`, whose live files are `tasks`.

        Where a compaction rewrote covered files together with others, `with_rows` reads these others.
        """
        known = self
        for snapshot in self._snapshots_after(table, head):
            text = snapshot.summary.get(POSITION_MAP)
            if text is None or not known.files:
                continue
            try:
                moved = open_position_map(table.io, PositionMapRef.from_text(text))
                if moved.table_uuid != table.uuid:
                    raise ValueError(f"it belongs to the table {moved.table_uuid}")
            except (IndexDamagedError, ValueError) as error:
                _LOG.warning(
                    "the position map of snapshot %d of %s cannot be used (%s): the compacted files are read",
                    snapshot.snapshot_id,
                    table.location,
                    error,
                )
                continue
            known = known._completed(table, snapshot, moved, with_rows)._moved(moved, tasks)
        return known

    def _snapshots_after(self, table: Table, head: Snapshot | None) -> list[Snapshot]:
        """The snapshots after the index's own, oldest first; none where its own is not known to be before."""
        found: list[Snapshot] = []
        for snapshot in table.metadata.ancestors(None if head is None else head.snapshot_id):
            if snapshot.snapshot_id == self.snapshot_id:
                return found[::-1]
            found.append(snapshot)
        is_next = bool(found) and found[-1].parent_snapshot_id == self.snapshot_id
        return found[::-1] if is_next and self.snapshot_id is not None else []

    def _completed(self, table: Table, snapshot: Snapshot, moved: MapFile, with_rows: WithRows) -> Covered:
        """Also covers the files that the compaction `snapshot` rewrote together with covered ones.

        Of a file that was removed before it was committed, no row is live any more.
        """
        missing: set[str] = set()
        for path, _ in moved.new_files:
            sources = moved.sources_of(path)
            lacking = [each for each in sources if each not in self.files]
            if len(lacking) < len(sources):
                missing.update(lacking)
        parent = snapshot.parent_snapshot_id
        before = None if parent is None else table.metadata.snapshots_by_id.get(parent)
        if not missing or before is None:
            return self
        try:
            added = [task for path, task in live_tasks(table, before).items() if path in missing]
            state = with_rows(self.state, added) if added else self.state
        except MissingFileError:
            return self  # deleted since: the new files are read
        return replace(self, state=state, files=self.files | missing)

    def _moved(self, moved: MapFile, tasks: Mapping[str, FileScanTask]) -> Covered:
        """The index after the compaction. An old file that another writer adds again is not covered."""
        gone = {path for path, _ in moved.old_files}
        if not gone & self.files:
            return self
        files = set(self.files - gone)
        for path, rows in moved.new_files:
            task = tasks.get(path)
            is_complete = task is None or task.data_file.record_count == rows
            if is_complete and self.files.issuperset(moved.sources_of(path)):
                files.add(path)
        return replace(self, state=self.state.with_map(moved.ref), files=frozenset(files))


def live_tasks(table: Table, snapshot: Snapshot | None) -> dict[str, FileScanTask]:
    """The live data files of a snapshot by path, each with the delete files that apply to it."""
    planner = ScanPlanner(table.io, table.specs, TRUE)
    tasks = () if snapshot is None else planner.tasks(table.manifests(snapshot))
    return {task.data_file.file_path: task for task in tasks}
