"""How much of its limits a micro-batch has taken while its end is being chosen."""

from __future__ import annotations

from streamlake.pipeline.iceberg.snapshot_parts import NumberedPart
from streamlake.read.changes.change_tasks import SnapshotChanges
from streamlake.source.iceberg.iceberg_options import ReadLimits
from streamlake.spec.metadata.snapshot import Snapshot


class BatchBudget:
    """What one micro-batch may still take. The first part of a micro-batch always fits, so that it goes
    on.
    """

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._snapshots = 0
        self._files = 0
        self._rows = 0
        self._bytes = 0
        self._last_file: tuple[int, int] | None = None

    def take_snapshot(self) -> bool:
        """Whether one more snapshot may be read; if so, it is counted."""
        limit = self._limits.snapshots
        if limit is not None and self._snapshots >= limit:
            return False
        self._snapshots += 1
        return True

    def take_all(self, snapshot: Snapshot) -> bool:
        """Whether everything that the snapshot added fits, by its summary; if so, it is counted."""
        files, rows, size = (
            snapshot.summary.get(key) for key in ("added-data-files", "added-records", "added-files-size")
        )
        if files is None or rows is None or size is None:
            return False
        if not (files.isdigit() and rows.isdigit() and size.isdigit()):
            return False
        return self._take(int(files), int(rows), int(size), is_forced=False)

    def take_changes(self, changes: SnapshotChanges) -> bool:
        """Whether all that a snapshot changed fits; if so, it is counted."""
        files = {task.rows.data_file.file_path for task in changes.tasks}
        size = sum(task.size_expected for task in changes.tasks)
        return self._take(len(files), changes.rows_expected, size, is_forced=self._files == 0)

    def take(self, snapshot_id: int, numbered: NumberedPart) -> bool:
        """Whether one more part fits; if so, it is counted."""
        file = (snapshot_id, numbered.at.file)
        is_new = file != self._last_file
        part = numbered.part
        if not self._take(int(is_new), part.rows, part.length, is_forced=self._files == 0):
            return False
        self._last_file = file
        return True

    def _take(self, files: int, rows: int, size: int, *, is_forced: bool) -> bool:
        limits = self._limits
        after = (self._files + files, self._rows + rows, self._bytes + size)
        fits = all(
            limit is None or value <= limit
            for value, limit in zip(after, (limits.files, limits.rows, limits.bytes), strict=True)
        )
        if not (fits or is_forced):
            return False
        self._files, self._rows, self._bytes = after
        return True
