"""Scan planning: from a snapshot to the files that a scan must read (spec: Scan Planning).

The steps: manifest list -> manifests that may hold a match (partition summaries) -> files that may
(partition, then metrics) -> one `FileScanTask` each, with the part of the filter that is still open for that
file. Invariant: a file that may hold a matching live row is always planned; a delete file that applies to it
is always attached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

from streamlake.formats.manifests.manifests import read_manifest
from streamlake.read.delete_index import DeleteFileIndex, EqualityDeletes
from streamlake.spec.expressions.evaluators import file_may_match, file_residual, manifest_may_match
from streamlake.spec.expressions.expressions import FALSE, TRUE, Expression
from streamlake.spec.expressions.projection import inclusive_projection, residual
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.storage.file_io import FileIO

_READERS = 4
_Metric = TypeVar("_Metric", int, bytes)


@dataclass(frozen=True)
class FileScanTask:
    """One data file to read, with the deletes that apply to it.

    `residual` is the bound filter that its rows still have to pass; `sequence_number` is the data sequence
    number of the file. `delete_files` are all that apply to it. `equality_deletes` are the groups that the
    equality deletes among them belong to; a group also holds older ones, which do not apply.
    """

    data_file: DataFile
    spec: PartitionSpec
    residual: Expression
    sequence_number: int | None
    delete_files: tuple[DataFile, ...] = ()
    equality_deletes: tuple[EqualityDeletes, ...] = ()

    @property
    def known_count(self) -> int | None:
        """The number of rows that the scan takes from the file, where metadata gives it; else None.

        It does when all rows are wanted and at most a deletion vector, whose entry has its cardinality,
        deletes some.
        """
        if self.residual != TRUE:
            return None
        if not self.delete_files:
            return self.data_file.record_count
        [vector, *others] = self.delete_files
        if others or not vector.is_deletion_vector:
            return None
        return self.data_file.record_count - vector.record_count


class ScanPlanner:
    """Plans one bound filter over manifests.

    Projections are made once per partition spec, residuals once per partition.
    """

    def __init__(self, io: FileIO, specs: Mapping[int, PartitionSpec], bound: Expression) -> None:
        self._io = io
        self._specs = specs
        self._bound = bound
        self._projections: dict[int, Expression] = {}
        self._residuals: dict[tuple[int, tuple[Any, ...]], Expression] = {}

    def tasks(self, manifests: Iterable[ManifestFile]) -> Iterator[FileScanTask]:
        """One task per data file, in the order of the manifests."""
        kept = [manifest for manifest in manifests if self.may_match(manifest)]
        data = [manifest for manifest in kept if manifest.content == ManifestContent.DATA]
        if not data:
            return
        with_deletes = [manifest for manifest in kept if manifest.content == ManifestContent.DELETES]
        deletes = self.delete_index(with_deletes)
        for entries in read_manifests(self._io, data, self._specs, with_stats=self._bound != TRUE):
            for entry in entries:
                task = self.task(entry)
                if task is not None:
                    yield with_deletes_of(task, deletes)

    def delete_index(self, manifests: Iterable[ManifestFile], readers: int = _READERS) -> DeleteFileIndex:
        """The delete files that `manifests` list, but for equality deletes of no matching row."""
        # Delete files need the bounds of their file paths; data files those of the filter's columns.
        read = read_manifests(self._io, manifests, self._specs, with_stats=True, readers=readers)
        return DeleteFileIndex(self._specs, filter(self._may_delete_matches, chain.from_iterable(read)))

    def task(self, entry: ManifestEntry) -> FileScanTask | None:
        """The task of a data file without its deletes, or None when none of its rows can match."""
        file = entry.data_file
        left = file_residual(self._residual(file), file) if file.record_count else FALSE
        return (
            None
            if left == FALSE
            else FileScanTask(file, self._specs[file.spec_id], left, entry.sequence_number)
        )

    def _residual(self, file: DataFile) -> Expression:
        if self._bound == TRUE:
            return TRUE
        key = (file.spec_id, file.partition)
        if key not in self._residuals:
            self._residuals[key] = residual(self._bound, self._specs[file.spec_id], file.partition)
        return self._residuals[key]

    def _may_delete_matches(self, entry: ManifestEntry) -> bool:
        """False for equality deletes whose key metrics show that no matching row has such a key."""
        file = entry.data_file
        if self._bound == TRUE or file.content != FileContent.EQUALITY_DELETES or not file.equality_ids:
            return True
        return file_may_match(self._bound, _of_keys(file))

    def _projection(self, spec_id: int) -> Expression:
        if spec_id not in self._projections:
            self._projections[spec_id] = inclusive_projection(self._bound, self._specs[spec_id])
        return self._projections[spec_id]

    def may_match(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may hold a file that the filter needs."""
        if self._bound == FALSE or not manifest.may_have_live_files:
            return False
        if manifest.partition_spec_id not in self._specs:
            return True  # reading the file raises the error that names it
        return manifest_may_match(self._projection(manifest.partition_spec_id), manifest)


def with_deletes_of(task: FileScanTask, deletes: DeleteFileIndex) -> FileScanTask:
    """The task with the delete files that apply to its data file."""
    applied = deletes.deletes_of(task.data_file, task.sequence_number)
    if not applied:
        return task
    groups = deletes.equality_deletes_of(task.data_file, task.sequence_number)
    return replace(task, delete_files=applied, equality_deletes=groups)


def _of_keys(file: DataFile) -> DataFile:
    """An equality delete file with the metrics of its key columns only; it may hold whole rows."""
    ids = set(file.equality_ids or ())

    def kept(values: dict[int, _Metric] | None) -> dict[int, _Metric] | None:
        return None if values is None else {key: value for key, value in values.items() if key in ids}

    return replace(
        file,
        value_counts=kept(file.value_counts),
        null_value_counts=kept(file.null_value_counts),
        nan_value_counts=kept(file.nan_value_counts),
        lower_bounds=kept(file.lower_bounds),
        upper_bounds=kept(file.upper_bounds),
    )


def read_manifests(
    io: FileIO,
    manifests: Iterable[ManifestFile],
    specs: Mapping[int, PartitionSpec],
    *,
    with_stats: bool,
    readers: int = _READERS,
) -> Iterator[list[ManifestEntry]]:
    """The live entries of each manifest, in order; `readers` are read at a time, and twice as many in
    memory.
    """
    todo = list(manifests)

    def load(manifest: ManifestFile) -> list[ManifestEntry]:
        return read_manifest(io, manifest, specs, with_stats=with_stats, live_only=True)

    if len(todo) <= 1 or readers <= 1:
        yield from map(load, todo)
        return
    with ThreadPoolExecutor(max_workers=readers, thread_name_prefix="streamlake-plan") as pool:
        for at in range(0, len(todo), 2 * readers):
            yield from pool.map(load, todo[at : at + 2 * readers])
