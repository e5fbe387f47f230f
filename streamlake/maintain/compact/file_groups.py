"""File groups: which data files a compaction rewrites, and which of them together.

Files are chosen as Iceberg's planner does it: those of a wrong size, and those with many deletes, packed into
groups of one partition; a group is rewritten where that gains something. Files of another partition spec than
the table's form groups of their own. Invariant: a file comes with every delete that applies to it, whatever
the filter that chose its partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from streamlake.errors import InvalidOptionError
from streamlake.maintain.compact.compact_options import CompactOptions
from streamlake.read.planning import FileScanTask, ScanPlanner, read_manifests, with_deletes_of
from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.expressions import TRUE, Expression, predicates
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestContent
from streamlake.spec.metadata.partition_keys import PartitionKey, partition_key
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.partitioning.transforms import Void
from streamlake.table.table import Table


@dataclass(frozen=True)
class FileGroup:
    """Data files that are rewritten together, with their deletes.

    `number` is unique within a plan. `output_files` is how many files they should become.
    """

    number: int
    tasks: tuple[FileScanTask, ...]
    output_files: int
    output_spec_id: int

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files."""
        return tuple(task.data_file for task in self.tasks)

    @property
    def bytes(self) -> int:
        """The size of the data files."""
        return sum(task.data_file.file_size_in_bytes for task in self.tasks)

    @property
    def rows(self) -> int:
        """Their rows, deleted ones included."""
        return sum(task.data_file.record_count for task in self.tasks)

    @property
    def delete_files(self) -> dict[tuple[str, int | None], DataFile]:
        """The delete files that apply to them, by identity."""
        return {file.identity: file for task in self.tasks for file in task.delete_files}

    @property
    def moves(self) -> bool:
        """Whether rows change their partition or its spec."""
        places = {partition_key(file.spec_id, file.partition) for file in self.files}
        return len(places) > 1 or self.tasks[0].data_file.spec_id != self.output_spec_id


def partition_filter(table: Table, text: str | None) -> Expression:
    """The bound filter that chooses partitions.

    Raises InvalidOptionError for text that does not parse, and for a column that no partition spec in use is
    made of: a file is rewritten whole.
    """
    bound = bind(text, table.schema)
    sources = {
        part.source_id
        for spec in table.specs.values()
        for part in spec.fields
        if not isinstance(part.transform, Void)
    }
    for predicate in predicates(bound):
        if predicate.ref.field_id not in sources:
            names = sorted(filter(None, (table.schema.name_of(each) for each in sources)))
            has = f"it is partitioned by {', '.join(names)}" if names else "it is not partitioned"
            raise InvalidOptionError(
                f"{table.name}: the filter {text} is on {table.schema.name_of(predicate.ref.field_id)}, "
                f"which is no partition column, and files are rewritten whole; {has}"
            )
    return bound


def planned_groups(
    table: Table, snapshot: Snapshot, bound: Expression, options: CompactOptions
) -> list[FileGroup]:
    """The groups to rewrite, in the order in which they are to be rewritten."""
    packed = [group for tasks in _by_partition(table, snapshot, bound) for group in _packed(tasks, options)]
    groups: list[FileGroup] = []
    left = options.max_files
    for tasks in packed:
        if left is not None:
            tasks = tasks[:left]
            left -= len(tasks)
        if tasks:
            expected = options.output_files(sum(map(_size, tasks)))
            groups.append(FileGroup(len(groups), tuple(tasks), expected, options.output_spec_id))
    return _ordered(groups, options.job_order)


def _by_partition(table: Table, snapshot: Snapshot, bound: Expression) -> Iterable[list[FileScanTask]]:
    current = table.spec
    found: dict[PartitionKey, list[FileScanTask]] = {}
    for task in _tasks(table, snapshot, bound):
        file = task.data_file
        # As in Iceberg: files of another spec may hold rows of any partition.
        own = file.partition if file.spec_id == current.spec_id else (None,) * len(current.fields)
        found.setdefault(partition_key(current.spec_id, own), []).append(task)
    return found.values()


def _tasks(table: Table, snapshot: Snapshot, bound: Expression) -> Iterator[FileScanTask]:
    planner = ScanPlanner(table.io, table.specs, bound)
    manifests = table.manifests(snapshot)
    data = [each for each in manifests if each.content == ManifestContent.DATA and planner.may_match(each)]
    # A filter of a scan leaves out deletes of rows that it does not want; here files are rewritten whole.
    of_deletes = [each for each in manifests if each.content == ManifestContent.DELETES]
    deletes = ScanPlanner(table.io, table.specs, TRUE).delete_index(
        each for each in of_deletes if each.may_have_live_files
    )
    entries = read_manifests(table.io, data, table.specs, with_stats=bound != TRUE)
    for entry in chain.from_iterable(entries):
        task = planner.task(entry)
        if task is not None:
            yield with_deletes_of(replace(task, residual=TRUE), deletes)


def _packed(tasks: Sequence[FileScanTask], options: CompactOptions) -> list[list[FileScanTask]]:
    if options.rewrite_all:
        return list(_bins(tasks, options))
    chosen = [task for task in tasks if _is_chosen(task, options)]
    return [group for group in _bins(chosen, options) if _is_worth_it(group, options)]


def _bins(tasks: Iterable[FileScanTask], options: CompactOptions) -> Iterator[list[FileScanTask]]:
    """The files in order, cut where a group would become too large."""
    group: list[FileScanTask] = []
    size = 0
    for task in tasks:
        full = options.max_group_files is not None and len(group) >= options.max_group_files
        if group and (full or size + _size(task) > options.max_group_size):
            yield group
            group, size = [], 0
        group.append(task)
        size += _size(task)
    if group:
        yield group


def _is_chosen(task: FileScanTask, options: CompactOptions) -> bool:
    of_size = options.min_file_size <= _size(task) <= options.max_file_size
    return not of_size or has_many_deletes(task, options)


def _is_worth_it(group: Sequence[FileScanTask], options: CompactOptions) -> bool:
    size = sum(map(_size, group))
    several = len(group) > 1 and (len(group) >= options.min_input_files or size > options.target_file_size)
    return several or size > options.max_file_size or any(has_many_deletes(task, options) for task in group)


def has_many_deletes(task: FileScanTask, options: CompactOptions) -> bool:
    """Whether a file is rewritten because of its deletes, whatever its size."""
    threshold = options.delete_file_threshold
    if threshold is not None and len(task.delete_files) >= threshold:
        return True
    if not task.delete_files:
        return False
    # Only deletes of this file alone say how many of its rows they delete.
    known = sum(file.record_count for file in task.delete_files if file.deletes_from is not None)
    rows = task.data_file.record_count
    return bool(rows) and min(known, rows) / rows >= options.delete_ratio_threshold


def _size(task: FileScanTask) -> int:
    return task.data_file.file_size_in_bytes


def _ordered(groups: list[FileGroup], job_order: str) -> list[FileGroup]:
    if job_order == "none":
        return groups
    by_bytes = job_order.startswith("bytes")
    return sorted(
        groups,
        key=lambda group: group.bytes if by_bytes else len(group.tasks),
        reverse=job_order.endswith("desc"),
    )
