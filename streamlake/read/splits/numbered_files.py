"""The files that a stream reads of one snapshot, numbered in planning order.

Either all live files, with the deletes that apply to them (a first full scan), or those that an appending
snapshot added. The order is that of the snapshot's manifest list and manifests, or by the lower bounds of a
column. A snapshot's manifests never change, so a file has the same number as long as the snapshot exists.

Invariant: files that the filter leaves out have numbers too. The number of a file depends neither on the
filter nor on how well files are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from streamlake.read.delete_index import DeleteFileIndex
from streamlake.read.planning import FileScanTask, ScanPlanner, read_manifests, with_deletes_of
from streamlake.spec.expressions.expressions import TRUE, Expression
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.types.data_types import NestedField
from streamlake.spec.types.values import from_bytes
from streamlake.storage.file_io import FileIO


class NumberedFile(NamedTuple):
    """A file with its number in planning order."""

    number: int
    task: FileScanTask


@dataclass(frozen=True)
class SnapshotFiles:
    """The files to read of one snapshot, given its manifests.

    `added_by`: the id of the snapshot that must have added a file; None for a full scan. `bound` is the bound
    filter, `order_by` the column whose lower bounds order the files, `readers` the number of manifests that
    are read at a time.
    """

    io: FileIO
    specs: Mapping[int, PartitionSpec]
    manifests: Sequence[ManifestFile]
    bound: Expression
    added_by: int | None
    order_by: NestedField | None = None
    readers: int = 4

    def since(self, number: int) -> Iterator[NumberedFile]:
        """The files from a number on that the filter may match, in planning order."""
        planner = ScanPlanner(self.io, self.specs, self.bound)
        deletes = self._deletes(planner)
        if self.order_by is not None:
            yield from self._ordered(planner, deletes, self.order_by, number)
            return
        for found, entry in self._numbered(planner, number):
            if found >= number:
                task = _task(planner, deletes, entry)
                if task is not None:
                    yield NumberedFile(found, task)

    def _deletes(self, planner: ScanPlanner) -> DeleteFileIndex | None:
        if self.added_by is not None:
            return None
        manifests = [each for each in self.manifests if each.content == ManifestContent.DELETES]
        return planner.delete_index(filter(planner.may_match, manifests), self.readers)

    def _numbered(self, planner: ScanPlanner, number: int) -> Iterator[tuple[int, ManifestEntry]]:
        """The entries of the manifests that are needed, with their numbers.

        A manifest that is not needed is counted by what the manifest list says of it, where it does.
        """
        plan: list[tuple[int, ManifestFile | None]] = []
        before: int | None = 0
        for manifest in self._data_manifests():
            count = self._count(manifest)
            is_passed = count is not None and before is not None and before + count <= number
            if count is not None and (is_passed or not planner.may_match(manifest)):
                plan.append((count, None))
            else:
                plan.append((0, manifest))
            before = None if count is None or before is None else before + count
        entries = self._entries([manifest for _, manifest in plan if manifest is not None])
        at = 0
        for count, needed in plan:
            for entry in [] if needed is None else next(entries):
                yield at, entry
                at += 1
            at += count

    def _data_manifests(self) -> Iterator[ManifestFile]:
        for manifest in self.manifests:
            if manifest.content != ManifestContent.DATA:
                continue
            if self.added_by is None or manifest.added_snapshot_id in (None, self.added_by):
                yield manifest

    def _count(self, manifest: ManifestFile) -> int | None:
        """The number of files that the manifest counts for; None where the manifest list does not say."""
        added, existing = manifest.added_files_count, manifest.existing_files_count
        if self.added_by is not None:
            # An added file of a manifest without an id of its own may be another snapshot's.
            return added if manifest.added_snapshot_id is not None else None
        return None if added is None or existing is None else added + existing

    def _entries(self, manifests: Sequence[ManifestFile]) -> Iterator[list[ManifestEntry]]:
        with_stats = self.bound != TRUE or self.order_by is not None
        for entries in read_manifests(
            self.io, manifests, self.specs, with_stats=with_stats, readers=self.readers
        ):
            yield [entry for entry in entries if self._counts(entry)]

    def _counts(self, entry: ManifestEntry) -> bool:
        if self.added_by is None:
            return True
        return entry.status == EntryStatus.ADDED and entry.snapshot_id == self.added_by

    def _ordered(
        self, planner: ScanPlanner, deletes: DeleteFileIndex | None, column: NestedField, number: int
    ) -> Iterator[NumberedFile]:
        """The files by the lower bounds of a column; those whose bounds are not known come first."""
        found: list[tuple[int | None, int, ManifestEntry]] = []
        for entries in self._entries(list(self._data_manifests())):
            for entry in entries:
                found.append((_lower_bound(entry.data_file, column), len(found), entry))
        found.sort(key=lambda each: (each[0] is not None, each[0] or 0, each[1]))
        for at, (_, _, entry) in enumerate(found):
            if at >= number:
                task = _task(planner, deletes, entry)
                if task is not None:
                    yield NumberedFile(at, task)


def _task(planner: ScanPlanner, deletes: DeleteFileIndex | None, entry: ManifestEntry) -> FileScanTask | None:
    """The task of a file with its deletes, without the statistics, which no reader needs; None: no row
    matches.
    """
    task = planner.task(entry)
    if task is None:
        return None
    if task.data_file.value_counts is not None or task.data_file.lower_bounds is not None:
        task = replace(task, data_file=_without_stats(task.data_file))
    return task if deletes is None else with_deletes_of(task, deletes)


def _without_stats(file: DataFile) -> DataFile:
    return replace(
        file,
        column_sizes=None,
        value_counts=None,
        null_value_counts=None,
        nan_value_counts=None,
        lower_bounds=None,
        upper_bounds=None,
    )


def _lower_bound(file: DataFile, column: NestedField) -> int | None:
    bound = (file.lower_bounds or {}).get(column.field_id)
    return None if bound is None else int(from_bytes(column.type, bound))
