"""Writes the new deletes of a plan: one deletion vector or position delete file per data file.

With `write.delete.granularity=partition`, version 2 gets delete files of whole partitions. Data files are
taken in groups, so that memory holds the positions of one group. Invariant: what is written deletes exactly
the rows that the deletes it replaces delete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamlake import ids
from streamlake.formats.deletes.deletion_vectors import read_deletion_vector
from streamlake.formats.deletes.position_deletes import merged_positions
from streamlake.maintain.deletes.delete_plan import DeletedFrom, DeletePlan
from streamlake.maintain.deletes.delete_rewrite_options import DeleteRewriteOptions
from streamlake.maintain.deletes.keyed_positions import KeyedPositions
from streamlake.on_progress import OnProgress
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.partition_keys import partition_key
from streamlake.table.table import Table
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.options import DELETE_TARGET_FILE_SIZE, PER_FILE, PER_PARTITION
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget

Array = np.ndarray[Any, Any]

_ROWS_AT_ONCE = 1 << 24
_FILES_AT_ONCE = 1_000


@dataclass(frozen=True)
class NewDeletesOf:
    """The new deletes of some data files: one, or with granularity "partition" all of a partition.

    `written` take the place of the files' `merged` ones, with the data sequence number `number`; none are
    written where these delete no row. `rows` counts those that only equality deletes had deleted.
    """

    files: tuple[DeletedFrom, ...]
    written: tuple[DataFile, ...]
    number: int
    rows: int


class DeleteWriter:
    """Writes the deletes of one conversion; all its files have names of their own."""

    def __init__(self, table: Table, options: DeleteRewriteOptions) -> None:
        self._target = WriteTarget.for_table(
            table.metadata,
            io=table.io,
            job_id="maintenance",
            checkpoint_id=0,
            operation_uuid=ids.new_uuid(),
            properties={DELETE_TARGET_FILE_SIZE: str(options.target_file_size_bytes)},
        )
        self._output = OutputFiles(self._target, 0, 0, 0)
        self._per_file = options.is_per_file or table.format_version >= 3
        self._keyed = KeyedPositions(table)

    def write(self, plan: DeletePlan, on_progress: OnProgress) -> Iterator[NewDeletesOf]:
        """The new deletes of the plan's data files."""
        done = 0
        for group in _groups(plan.files):
            hits = self._keyed.by_key([file for file in group if file.keys])
            yield from self._write_group(plan, group, hits)
            done += len(group)
            on_progress("data files", done, len(plan.files))

    def merged_vectors(self, pairs: Sequence[tuple[DataFile, DataFile]]) -> dict[str, DataFile | None]:
        """A deletion vector for each pair of them, by the data file's path; None: the first has all of it."""
        positions: dict[DeletedFile, Array] = {}
        merged: dict[str, DataFile | None] = {}
        for first, second in pairs:
            there = read_deletion_vector(self._target.io, first)
            both = merged_positions([there, read_deletion_vector(self._target.io, second)])
            path = first.referenced_data_file or ""
            merged[path] = None
            if len(both) > len(there):
                positions[DeletedFile(path, first.spec_id, first.partition)] = both
        if not positions:
            return merged
        written = write_deletion_vectors(self._target, self._output, positions)
        return merged | {file.referenced_data_file or "": file for file in written}

    def delete_all_but(self, paths: Collection[str] = ()) -> None:
        """Delete the files that were written, but for those that a snapshot has."""
        self._output.delete_all(paths)

    def _write_group(
        self, plan: DeletePlan, group: Sequence[DeletedFrom], hits: dict[str, Array]
    ) -> Iterator[NewDeletesOf]:
        positions: dict[DeletedFile, Array] = {}
        found: dict[str, tuple[DeletedFrom, int, int]] = {}
        for file in group:
            hit = hits.get(file.path)
            if hit is None and not file.is_due:
                continue
            merged = self._keyed.by_position(file, file.merged)
            number = max(map(plan.number_of, file.merged), default=0)
            rows = 0
            if hit is not None:
                others = [each for each in file.task.delete_files if not _is_in(each, file)]
                before = merged_positions([merged, self._keyed.by_position(file, others)])
                new = np.setdiff1d(hit, before, assume_unique=True)
                rows = len(new)
                merged = merged_positions([merged, new])
                number = max(number, *(group.sequence_numbers[-1] for group in file.keys))
            if hit is not None and not rows and not file.is_due:
                continue
            data_file = file.task.data_file
            found[file.path] = file, number, rows
            if len(merged):
                positions[DeletedFile(file.path, data_file.spec_id, data_file.partition)] = merged
        written = self._written(positions)
        if self._per_file:
            by_path = {each.deletes_from: each for each in written}
            for path, (file, number, rows) in found.items():
                mine = by_path.get(path)
                yield NewDeletesOf((file,), () if mine is None else (mine,), number, rows)
            return
        by_partition: dict[object, list[tuple[DeletedFrom, int, int]]] = {}
        for each in found.values():
            data_file = each[0].task.data_file
            by_partition.setdefault(partition_key(data_file.spec_id, data_file.partition), []).append(each)
        for key, some in by_partition.items():
            files, numbers, counts = zip(*some, strict=True)
            own = tuple(each for each in written if partition_key(each.spec_id, each.partition) == key)
            yield NewDeletesOf(files, own, max(numbers), sum(counts))

    def _written(self, positions: dict[DeletedFile, Array]) -> tuple[DataFile, ...]:
        if self._target.format_version >= 3:
            return write_deletion_vectors(self._target, self._output, positions)
        granularity = PER_FILE if self._per_file else PER_PARTITION
        return write_position_deletes(self._target, self._output, positions, granularity)


def _is_in(delete: DataFile, file: DeletedFrom) -> bool:
    """Whether a delete file of `file` is an equality delete, or among those that are merged."""
    return bool(delete.equality_ids) or delete in file.merged


def _groups(files: Sequence[DeletedFrom]) -> Iterator[list[DeletedFrom]]:
    """The data files, those of a partition together, a bounded number of rows at a time."""
    ordered = sorted(
        files, key=lambda each: repr((each.task.data_file.spec_id, each.task.data_file.partition))
    )
    group: list[DeletedFrom] = []
    rows = 0
    for file in ordered:
        count = file.task.data_file.record_count
        if group and (rows + count > _ROWS_AT_ONCE or len(group) >= _FILES_AT_ONCE):
            yield group
            group, rows = [], 0
        group.append(file)
        rows += count
    if group:
        yield group
