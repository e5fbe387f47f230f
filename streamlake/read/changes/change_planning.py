"""Plans the changes of snapshots: from the manifests of each to the rows that it added and removed.

A snapshot's manifests say what it did: the entries that it marks ADDED and DELETED. They also say what was
there before it, namely all that is EXISTING or was added earlier, and what it marks DELETED. So the parent is
never read and may have expired. The rows that a snapshot removed are those that are live under the deletes
before it and

- in a data file that it removed, or
- deleted by a delete file that it added.

The rows that it added are those that are live under the deletes after it and in a data file that it added,
or deleted by a delete file that it removed without replacement. So a row that is added and deleted in one
snapshot is no change: position deletes and deletion vectors apply to data of their own sequence number,
equality deletes to older data only (spec: Scan Planning). Invariant: a changed row is in exactly one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from streamlake.formats.manifests.manifests import read_manifest
from streamlake.read.changes.change_tasks import ChangedSnapshot, RowsTask, SnapshotChanges
from streamlake.read.changes.key_overlap import KeyOverlap
from streamlake.read.delete_index import DeleteFileIndex
from streamlake.read.planning import FileScanTask, ScanPlanner
from streamlake.spec.expressions.expressions import FALSE, TRUE, Expression
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

ManifestsOf = Callable[[ChangedSnapshot], Iterable[ManifestFile]]


class ChangePlanner:
    """Plans the changes of successive snapshots of one range. Not thread-safe.

    Manifests that successive snapshots share are decoded once.
    """

    def __init__(
        self,
        io: FileIO,
        specs: Mapping[int, PartitionSpec],
        schema: Schema,
        bound: Expression = TRUE,
        readers: int = 4,
    ) -> None:
        """`bound` is the bound filter on the rows of both kinds; `schema` the one that rows are read with;
        `readers` manifests are read at a time.
        """
        self._io, self._specs, self._bound = io, specs, bound
        self._readers = readers
        self._files = ScanPlanner(io, specs, bound)
        self._overlap = KeyOverlap(schema)
        self._decoded: dict[tuple[tuple[object, ...], bool], list[ManifestEntry]] = {}

    def changes(
        self, snapshots: Iterable[ChangedSnapshot], manifests_of: ManifestsOf
    ) -> Iterator[SnapshotChanges]:
        """What each of the snapshots changed, planned while it is taken; `manifests_of` lists manifests."""
        for snapshot in snapshots:
            yield self.of(snapshot, manifests_of(snapshot))

    def of(self, snapshot: ChangedSnapshot, manifests: Iterable[ManifestFile]) -> SnapshotChanges:
        """What a snapshot changed; what is decoded of its manifests is kept for the next one."""
        known = tuple(manifests)
        found = SnapshotChanges(snapshot, tuple(self._tasks(snapshot, known)))
        self._forget_all_but(known)
        return found

    def only_appends(self, snapshot: ChangedSnapshot, manifests: Iterable[ManifestFile]) -> bool:
        """Whether all that a snapshot did was to add data files of its own sequence number.

        Then its rows are the live rows of these files: no delete can apply to them.
        """
        for manifest in manifests:
            if manifest.added_snapshot_id not in (None, snapshot.snapshot_id):
                continue
            has_deletes = manifest.content == ManifestContent.DELETES
            if manifest.deleted_files_count == 0 and (
                manifest.added_files_count == 0
                or not (has_deletes or manifest.min_sequence_number != snapshot.sequence_number)
            ):
                continue
            for entry in self._own_entries(snapshot, [manifest]):
                is_older = (entry.sequence_number or 0) < snapshot.sequence_number
                if has_deletes or is_older or entry.status != EntryStatus.ADDED:
                    return False
        return True

    def _tasks(self, snapshot: ChangedSnapshot, manifests: tuple[ManifestFile, ...]) -> Iterator[RowsTask]:
        if self._bound == FALSE:
            return
        data = [each for each in manifests if each.content == ManifestContent.DATA]
        deletes = [each for each in manifests if each.content == ManifestContent.DELETES]
        step = _Step.of(snapshot, self._own_entries(snapshot, data), self._own_entries(snapshot, deletes))
        if not step:
            return
        before, after = self._delete_states(snapshot, step, deletes)
        for entry in step.removed:
            yield from self._task(entry, before, is_added=False)
        if step.changes_deletes:
            yield from self._deleted_rows(snapshot, step, data, before, after)
        for entry in step.added:
            yield from self._task(entry, after, is_added=True)

    def _own_entries(self, snapshot: ChangedSnapshot, manifests: list[ManifestFile]) -> list[ManifestEntry]:
        """The entries that the snapshot itself wrote as ADDED or DELETED."""
        own = [each for each in manifests if each.added_snapshot_id in (None, snapshot.snapshot_id)]
        self._decode(own)
        return [
            entry
            for manifest in own
            for entry in self._entries(manifest)
            if entry.snapshot_id == snapshot.snapshot_id and entry.status != EntryStatus.EXISTING
        ]

    def _delete_states(
        self, snapshot: ChangedSnapshot, step: _Step, manifests: list[ManifestFile]
    ) -> tuple[DeleteFileIndex, DeleteFileIndex]:
        """The delete files before and after the snapshot; no manifest is read where none can matter."""
        nothing = DeleteFileIndex(self._specs, ())
        if not (step.removed or step.changes_deletes or step.adds_older_data):
            return nothing, nothing
        self._decode(manifests)
        entries = [entry for manifest in manifests for entry in self._entries(manifest)]
        before = [entry for entry in entries if _was_live(entry, snapshot)]
        after = [entry for entry in entries if entry.is_live]
        return DeleteFileIndex(self._specs, before), DeleteFileIndex(self._specs, after)

    def _deleted_rows(
        self,
        snapshot: ChangedSnapshot,
        step: _Step,
        manifests: list[ManifestFile],
        before: DeleteFileIndex,
        after: DeleteFileIndex,
    ) -> Iterator[RowsTask]:
        """Rows of data files that were there before and still are, whose deletes have changed."""
        new = DeleteFileIndex(self._specs, step.new_deletes)
        gone = DeleteFileIndex(self._specs, step.gone_deletes)
        restored: list[RowsTask] = []
        for entry in self._kept_files(snapshot, step, manifests):
            for changed, live, is_added in ((new, before, False), (gone, after, True)):
                cause = self._cause(entry, changed)
                if cause is None:
                    continue
                for task in self._task(entry, live, is_added=is_added):
                    found = replace(task, deleted_by=replace(cause, residual=task.rows.residual))
                    if is_added:
                        restored.append(found)
                    else:
                        yield found
        yield from restored

    def _kept_files(
        self, snapshot: ChangedSnapshot, step: _Step, manifests: list[ManifestFile]
    ) -> Iterator[ManifestEntry]:
        """The live data files that the snapshot did not add, as far as its deletes may be for them."""
        targets = step.targets
        self._decode(manifests, with_bounds=step.deletes_keys)
        for manifest in manifests:
            for entry in self._entries(manifest, with_bounds=step.deletes_keys):
                if not entry.is_live or _was_added(entry, snapshot):
                    continue
                if targets is None or entry.data_file.file_path in targets:
                    yield entry

    def _cause(self, entry: ManifestEntry, changed: DeleteFileIndex) -> FileScanTask | None:
        """A data file with the deletes of the index that can delete rows of it, or None without any."""
        file, number = entry.data_file, entry.sequence_number
        found = changed.deletes_of(file, number)
        if not found:
            return None
        keys = [each for each in found if each.content == FileContent.EQUALITY_DELETES]
        others = len(keys) < len(found)
        if keys and not others and not self._overlap.any_may_hit(keys, file):
            return None
        return FileScanTask(
            file, self._specs[file.spec_id], TRUE, number, found, changed.equality_deletes_of(file, number)
        )

    def _task(self, entry: ManifestEntry, deletes: DeleteFileIndex, *, is_added: bool) -> Iterator[RowsTask]:
        task = self._files.task(entry)
        if task is not None:
            file, number = entry.data_file, entry.sequence_number
            found = deletes.deletes_of(file, number)
            groups = deletes.equality_deletes_of(file, number) if found else ()
            yield RowsTask(is_added, replace(task, delete_files=found, equality_deletes=groups))

    def _decode(self, manifests: Iterable[ManifestFile], *, with_bounds: bool = False) -> None:
        """Decode manifests that are about to be asked for, several at a time."""
        due = [each for each in manifests if self._key(each, with_bounds=with_bounds) not in self._decoded]
        if len(due) > 1 and self._readers > 1:
            with ThreadPoolExecutor(min(self._readers, len(due)), "streamlake-plan") as pool:
                list(pool.map(lambda each: self._entries(each, with_bounds=with_bounds), due))

    def _entries(self, manifest: ManifestFile, *, with_bounds: bool = False) -> list[ManifestEntry]:
        """All entries; those of data files have metrics for a filter, or where `with_bounds` says so."""
        key = self._key(manifest, with_bounds=with_bounds)
        if key not in self._decoded:
            self._decoded[key] = read_manifest(self._io, manifest, self._specs, with_stats=key[1])
        return self._decoded[key]

    def _key(self, manifest: ManifestFile, *, with_bounds: bool) -> tuple[tuple[object, ...], bool]:
        """What a manifest's entries are kept under, and whether they have metrics."""
        with_stats = with_bounds or self._bound != TRUE or manifest.content == ManifestContent.DELETES
        return _identity(manifest), with_stats

    def _forget_all_but(self, manifests: Iterable[ManifestFile]) -> None:
        kept = {_identity(manifest) for manifest in manifests}
        for key in [key for key in self._decoded if key[0] not in kept]:
            del self._decoded[key]


@dataclass(frozen=True)
class _Step:
    """What one snapshot did to the files of the table."""

    added: list[ManifestEntry]
    removed: list[ManifestEntry]
    new_deletes: list[ManifestEntry]
    gone_deletes: list[ManifestEntry]
    adds_older_data: bool

    @staticmethod
    def of(snapshot: ChangedSnapshot, data: list[ManifestEntry], deletes: list[ManifestEntry]) -> _Step:
        added = [entry for entry in data if entry.status == EntryStatus.ADDED]
        return _Step(
            added,
            [entry for entry in data if entry.status == EntryStatus.DELETED],
            [entry for entry in deletes if entry.status == EntryStatus.ADDED],
            [entry for entry in deletes if entry.status == EntryStatus.DELETED],
            any((entry.sequence_number or 0) < snapshot.sequence_number for entry in added),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changes_deletes)

    @property
    def changes_deletes(self) -> bool:
        """Whether delete files were added or removed."""
        return bool(self.new_deletes or self.gone_deletes)

    @property
    def deletes_keys(self) -> bool:
        """Whether equality deletes were added or removed."""
        changed = (*self.new_deletes, *self.gone_deletes)
        return any(entry.data_file.content == FileContent.EQUALITY_DELETES for entry in changed)

    @property
    def targets(self) -> set[str] | None:
        """The data files that all changed deletes are for; None when some may be for any file."""
        found: set[str] = set()
        for entry in (*self.new_deletes, *self.gone_deletes):
            target = entry.data_file.deletes_from
            if target is None:
                return None
            found.add(target)
        return found


def _was_added(entry: ManifestEntry, snapshot: ChangedSnapshot) -> bool:
    return entry.status == EntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id


def _was_live(entry: ManifestEntry, snapshot: ChangedSnapshot) -> bool:
    """Whether the file belonged to the snapshot's parent."""
    if entry.is_live:
        return not _was_added(entry, snapshot)
    return entry.snapshot_id == snapshot.snapshot_id


def _identity(manifest: ManifestFile) -> tuple[object, ...]:
    return manifest.manifest_path, manifest.sequence_number, manifest.added_snapshot_id, manifest.first_row_id
