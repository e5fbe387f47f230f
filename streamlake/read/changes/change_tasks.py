"""What a plan of changes consists of: the snapshots of a range, and the rows of data files to read for each.

Made by `change_planning` on the driver from manifests alone, read by `changed_rows` wherever a task runs.
Invariant: the values pickle, and name everything that reading needs beside the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.data_file import DataFile, FileContent


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
    def key_files(self) -> tuple[DataFile, ...]:
        """The equality delete files that make the difference."""
        files = () if self.deleted_by is None else self.deleted_by.delete_files
        return tuple(file for file in files if file.content == FileContent.EQUALITY_DELETES)

    @property
    def rows_expected(self) -> int:
        """About how many rows there are, from metadata: those that the deletes can hit at most, as a rule."""
        file = self.rows.data_file
        if self.deleted_by is None:
            known = self.rows.known_count
            return file.record_count if known is None else known
        if self.key_files:
            return file.record_count
        vectors = [each for each in self.rows.delete_files if each.is_deletion_vector]
        hit = sum(each.record_count for each in self.deleted_by.delete_files)
        return min(file.record_count, max(hit - sum(each.record_count for each in vectors), 0))

    @property
    def size_expected(self) -> int:
        """About how many bytes of the data file are read: the more of its rows, the more of it."""
        file = self.rows.data_file
        return file.file_size_in_bytes * self.rows_expected // max(file.record_count, 1)


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
    def rows_expected(self) -> int:
        """About how many rows there are to read, from metadata.

        Equality deletes are taken to hit one row per key.
        """
        keys = {file.file_path: file.record_count for task in self.tasks for file in task.key_files}
        found = sum(task.rows_expected for task in self.tasks if task.key_files)
        others = sum(task.rows_expected for task in self.tasks if not task.key_files)
        return others + min(found, sum(keys.values()))
