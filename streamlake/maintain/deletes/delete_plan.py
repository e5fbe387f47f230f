"""The plan of a conversion of deletes, from the manifests of one snapshot: what is read, and what goes.

Delete manifests are read first and data manifests are passed through, so that memory follows the deletes, not
the table. Which delete file applies to which data file is decided as a scan decides it (spec: Scan Planning).
Invariant: a delete file that is to go is dangling, or all rows that it deletes are in data files of the plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamlake.maintain.deletes.delete_rewrite_options import DeleteRewriteOptions
from streamlake.read.changes.key_overlap import KeyOverlap
from streamlake.read.delete_index import DeleteFileIndex, EqualityDeletes
from streamlake.read.planning import FileScanTask, read_manifests
from streamlake.spec.expressions.expressions import FALSE, TRUE, Expression
from streamlake.spec.expressions.projection import residual
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestContent, ManifestEntry
from streamlake.spec.metadata.partition_keys import PartitionKey, partition_key
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table

Identity = tuple[str, int | None]


@dataclass(frozen=True)
class DeletedFrom:
    """A data file whose deletes may be written anew.

    `task` has all deletes that apply to it. `merged` are the position deletes and the deletion vector among
    them that a new delete file takes the place of. `is_due`: they are merged even where no equality delete
    hits a row. `manifest_path` is of the manifest that lists the data file.
    """

    task: FileScanTask
    merged: tuple[DataFile, ...]
    is_due: bool
    manifest_path: str

    @property
    def path(self) -> str:
        """The data file's path."""
        return self.task.data_file.file_path

    @property
    def keys(self) -> tuple[EqualityDeletes, ...]:
        """The equality deletes that may hit a row of it."""
        return self.task.equality_deletes


@dataclass(frozen=True)
class DeletePlan:
    """What a conversion has to do on one snapshot.

    `deletes` are all live delete files by identity. Of them, `equality` are converted, `dangling` delete
    nothing any more, and `shared` are position deletes of several data files, all of which are in `files`.
    `manifest_paths` are those of the snapshot.
    """

    snapshot_id: int | None
    format_version: int
    files: tuple[DeletedFrom, ...] = ()
    equality: tuple[ManifestEntry, ...] = ()
    dangling: tuple[DataFile, ...] = ()
    shared: tuple[DataFile, ...] = ()
    deletes: Mapping[Identity, ManifestEntry] = field(default_factory=dict)
    manifest_paths: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.equality or self.dangling or self.shared)

    def number_of(self, file: DataFile) -> int:
        """The data sequence number of a live delete file."""
        return self.deletes[file.identity].sequence_number or 0


def delete_plan(
    table: Table, head: Snapshot | None, options: DeleteRewriteOptions, bound: Expression = TRUE
) -> DeletePlan:
    """The plan for the deletes of a snapshot that may be in partitions of the `bound` filter."""
    manifests = table.manifests(head)
    with_deletes = [each for each in manifests if each.content == ManifestContent.DELETES]
    read = read_manifests(
        table.io,
        [each for each in with_deletes if each.may_have_live_files],
        table.specs,
        with_stats=True,
    )
    entries = [entry for part in read for entry in part]
    version = table.format_version
    plan = DeletePlan(None if head is None else head.snapshot_id, version)
    if not entries:
        return plan
    chosen = [entry for entry in entries if _is_chosen(table, entry.data_file, bound)]
    rewritten = _rewritten(chosen, version, options)
    selection = _Selection(table, entries, {entry.data_file.identity for entry in chosen}, rewritten, options)
    files = tuple(selection.files(head))
    gone = [entry for entry in chosen if entry.data_file.identity not in selection.applied]
    dangling = tuple(entry.data_file for entry in gone)
    lost = {file.identity for file in dangling}
    equality = [
        entry
        for entry in chosen
        if entry.data_file.content == FileContent.EQUALITY_DELETES and entry.data_file.identity not in lost
    ]
    shared = [
        entry.data_file
        for entry in chosen
        if _is_shared(entry.data_file) and entry.data_file.identity in rewritten - lost
    ]
    return replace(
        plan,
        files=files,
        equality=tuple(equality),
        dangling=dangling,
        shared=tuple(shared),
        deletes={entry.data_file.identity: entry for entry in entries},
        manifest_paths=frozenset(each.manifest_path for each in manifests),
    )


class _Selection:
    """Chooses the data files, and notes which delete files apply to any."""

    def __init__(
        self,
        table: Table,
        entries: Sequence[ManifestEntry],
        chosen: set[Identity],
        rewritten: set[Identity],
        options: DeleteRewriteOptions,
    ) -> None:
        self.applied: set[Identity] = set()
        self._table = table
        self._index = DeleteFileIndex(table.specs, entries)
        self._chosen = chosen
        self._rewritten = rewritten
        self._takes_all = table.format_version >= 3
        self._takes_own = options.is_per_file
        self._has_keys = any(entry.data_file.content == FileContent.EQUALITY_DELETES for entry in entries)
        self._overlap = KeyOverlap(table.schema)

    def files(self, head: Snapshot | None) -> Iterator[DeletedFrom]:
        """The data files of the plan, in the order of the manifests."""
        data = [
            each
            for each in self._table.manifests(head)
            if each.content == ManifestContent.DATA and each.may_have_live_files
        ]
        io, specs = self._table.io, self._table.specs
        for manifest in data:
            for entries in read_manifests(io, [manifest], specs, with_stats=self._has_keys):
                for entry in entries:
                    found = self._file(entry, manifest.manifest_path)
                    if found is not None:
                        yield found

    def _file(self, entry: ManifestEntry, manifest_path: str) -> DeletedFrom | None:
        file, number = entry.data_file, entry.sequence_number
        applied = self._index.deletes_of(file, number)
        if not applied:
            return None
        self.applied.update(each.identity for each in applied)
        groups: tuple[EqualityDeletes, ...] = ()
        keys = [each for each in applied if each.content == FileContent.EQUALITY_DELETES]
        hitting = [
            each for each in keys if each.identity in self._chosen and self._overlap.may_hit(each, file)
        ]
        if hitting:
            groups = self._index.equality_deletes_of(file, number)
        by_position = [each for each in applied if each.content == FileContent.POSITION_DELETES]
        due = tuple(each for each in by_position if each.identity in self._rewritten)
        if not (groups or due):
            return None
        merged = (*due, *(each for each in by_position if each not in due and self._is_merged(each)))
        task = FileScanTask(
            file.without_statistics(), self._table.specs[file.spec_id], TRUE, number, applied, groups
        )
        return DeletedFrom(task, merged, bool(due), manifest_path)

    def _is_merged(self, file: DataFile) -> bool:
        """Whether new position deletes take over those of a file that stays otherwise."""
        # A deletion vector hides position deletes, so it takes over all of them.
        return self._takes_all or (self._takes_own and not _is_shared(file))


def _rewritten(
    entries: Iterable[ManifestEntry], format_version: int, options: DeleteRewriteOptions
) -> set[Identity]:
    """The position deletes that are merged whatever the equality deletes are."""
    files = [entry.data_file for entry in entries]
    files = [file for file in files if file.content == FileContent.POSITION_DELETES]
    if options.rewrite_all:
        return {file.identity for file in files}
    if format_version >= 3:
        return {file.identity for file in files if not file.is_deletion_vector}
    by_partition: defaultdict[PartitionKey, list[DataFile]] = defaultdict(list)
    for file in files:
        by_partition[partition_key(file.spec_id, file.partition)].append(file)
    found: set[Identity] = set()
    for group in by_partition.values():
        worth_it = [file.identity for file in _scattered(group, options)]
        if len(worth_it) >= options.min_input_files:
            found.update(worth_it)
    return found


def _scattered(group: Sequence[DataFile], options: DeleteRewriteOptions) -> Iterator[DataFile]:
    """The position deletes of one partition that could be fewer."""
    count = Counter(file.deletes_from for file in group)
    for file in group:
        if not options.is_per_file:
            if file.file_size_in_bytes < options.min_file_size_bytes:
                yield file
        elif file.deletes_from is None or count[file.deletes_from] > 1:
            yield file


def _is_chosen(table: Table, file: DataFile, bound: Expression) -> bool:
    return bound == TRUE or residual(bound, table.specs[file.spec_id], file.partition) != FALSE


def _is_shared(file: DataFile) -> bool:
    return file.content == FileContent.POSITION_DELETES and file.deletes_from is None
