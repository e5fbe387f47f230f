"""What a plan of changes consists of: the snapshots of a range, and the rows of data files to read for each.

Made by `change_planning` on the driver from manifests alone, read by `changed_rows` wherever a task runs.
Invariant: the values pickle, and name everything that reading needs beside the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.data_file import FileContent


@dataclass(frozen=True)
class ChangedSnapshot:
    """A snapshot whose changes are read.

    `ordinal` counts the snapshots of the range from 0, without those that change no rows (`replace`), as
    Iceberg's `_change_ordinal` does.
    """

    snapshot_id: int
    sequence_number: int
    ordinal: int


@dataclass(frozen=True)
class RowsTask:
    """The rows of one data file that a snapshot added or removed.

    `rows` is the file with the deletes that the rows are live under. `deleted_by` is the same file with the
    deletes that make the difference, one of which deletes each of the rows; None when all live rows of the
    file are meant, because the file itself was added or removed.
    """

    is_added: bool
    rows: FileScanTask
    deleted_by: FileScanTask | None = None

    @property
    def rows_at_most(self) -> int:
        """An upper bound of the number of rows, from metadata; the exact number as a rule."""
        total = self.rows.data_file.record_count
        if self.deleted_by is None:
            return self.rows.known_count or total
        entries = self.deleted_by.delete_files
        if any(file.content == FileContent.EQUALITY_DELETES for file in entries):
            return total
        before = [file for file in self.rows.delete_files if file.is_deletion_vector]
        after = [file for file in entries if file.is_deletion_vector]
        if after:
            known = before[0].record_count if before else 0
            return min(total, max(after[0].record_count - known, 0))
        return min(total, sum(file.record_count for file in entries))


@dataclass(frozen=True)
class SnapshotChanges:
    """All that one snapshot changed: what it removed comes before what it added."""

    snapshot: ChangedSnapshot
    tasks: tuple[RowsTask, ...]

    @cached_property
    def is_one_sided(self) -> bool:
        """Whether rows were only added or only removed, so that no two of them can belong together."""
        return len({task.is_added for task in self.tasks}) < 2

    @property
    def rows_at_most(self) -> int:
        """An upper bound of the number of rows to read, from metadata."""
        return sum(task.rows_at_most for task in self.tasks)
