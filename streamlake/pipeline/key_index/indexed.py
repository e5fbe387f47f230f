"""The index of one snapshot with the snapshot's live data files; checkpoints look up old rows in it.

Place in the flow: `table_index` builds it from the table, and advances it after each own commit by that
commit's changes, so that the cost follows the batch. Invariant: every live data file is there with its data
sequence number and with all deletes that apply to it; where files are to be rewritten, with its first row id
too (spec: Row Lineage).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from streamlake.errors import StorageError
from streamlake.index.state import IndexState
from streamlake.pipeline.key_index.changed import Changed
from streamlake.pipeline.key_index.key_deletes import by_equality_alone
from streamlake.read.delete_index import EqualityDeletes
from streamlake.read.planning import FileScanTask, read_manifests
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent
from streamlake.spec.metadata.partition_keys import PartitionKey, partition_key
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.table.manifests.manifest_filter import oldest_sequence_number
from streamlake.table.table import Table
from streamlake.write.deletes.live_file import LiveFile


@dataclass(frozen=True)
class Indexed:
    """The index of one snapshot (None: the branch has none yet), with the snapshot's live data files by path,
    and those of them that equality deletes apply to.
    """

    snapshot_id: int | None
    state: IndexState
    live_files: Mapping[str, LiveFile]
    equality_deleted: Mapping[str, FileScanTask] = field(default_factory=dict)

    @staticmethod
    def planned(snapshot_id: int | None, state: IndexState, tasks: Mapping[str, FileScanTask]) -> Indexed:
        """The index of a snapshot that was planned as a whole: `tasks` are its live data files by path."""
        by_key = {path: by_equality_alone(task) for path, task in tasks.items() if task.equality_deletes}
        return Indexed(snapshot_id, state, {path: _live_file(task) for path, task in tasks.items()}, by_key)

    def tasks(self, specs: Mapping[int, PartitionSpec], paths: Iterable[str]) -> dict[str, FileScanTask]:
        """The scan tasks of these live data files, by path, as planning the snapshot would give them."""
        found = {}
        for path in paths:
            live = self.live_files[path]
            file = live.data_file
            plain = FileScanTask(file, specs[file.spec_id], TRUE, live.sequence_number)
            task = self.equality_deleted.get(path, plain)
            found[path] = replace(task, delete_files=(*task.delete_files, *live.delete_files))
        return found

    def after(
        self, table: Table, snapshot_id: int | None, changed: Changed, *, with_row_ids: bool
    ) -> Indexed | None:
        """The index after the own commit `snapshot_id` of this change onto `self.snapshot_id`.
        `with_row_ids`: its data files get their first row ids, for which the manifests that it added are
        read. None where not everything is known, so that the table has to be planned.
        """
        snapshot = None if snapshot_id is None else table.metadata.snapshot(snapshot_id)
        if snapshot is None or changed.state is None:
            return None
        base = None if self.snapshot_id is None else table.metadata.snapshot(self.snapshot_id)
        has_ids = snapshot.first_row_id is not None
        if with_row_ids and has_ids and self.live_files and (base is None or base.first_row_id is None):
            return None  # a table that was upgraded: this commit has given the rows of old files their ids
        try:
            manifests = table.manifests(snapshot)
            data_files = _added_files(table, snapshot) if with_row_ids and has_ids else changed.data_files
        except StorageError:
            return None
        live = advanced(
            self.live_files, changed.removed, data_files, changed.delete_files, snapshot.sequence_number
        )
        deleted = {path: task for path, task in self.equality_deleted.items() if path in live}
        if deleted:
            deleted = _without_older(deleted, oldest_sequence_number(manifests, 0))
        return Indexed(snapshot.snapshot_id, changed.state, live, deleted)


def advanced(
    live_files: Mapping[str, LiveFile],
    removed: Iterable[DataFile],
    data_files: Iterable[DataFile],
    delete_files: Iterable[DataFile],
    sequence_number: int,
) -> dict[str, LiveFile]:
    """The live data files after a commit with this sequence number that adds and removes these files."""
    after = dict(live_files)
    gone = {file.identity for file in removed}
    for file in removed:
        if file.is_data:
            after.pop(file.file_path, None)
    after.update(
        {file.file_path: LiveFile(file.without_statistics(), (), sequence_number) for file in data_files}
    )
    added: dict[str, list[DataFile]] = {file.deletes_from or "": [] for file in removed}
    shared = _shared_deletes(delete_files)
    for path, live in after.items() if shared else ():
        of_partition = shared.get(partition_key(live.data_file.spec_id, live.data_file.partition))
        if of_partition is not None:
            added.setdefault(path, []).extend(of_partition)
    for file in delete_files:
        added.setdefault(file.deletes_from or "", []).append(file)
    for path in added.keys() & after.keys():
        live = after[path]
        kept = (each for each in live.delete_files if each.identity not in gone)
        after[path] = replace(live, delete_files=(*kept, *added[path]))
    return after


def _live_file(task: FileScanTask) -> LiveFile:
    positions = tuple(file for file in task.delete_files if file.content == FileContent.POSITION_DELETES)
    return LiveFile(task.data_file, positions, task.sequence_number)


def _added_files(table: Table, snapshot: Snapshot) -> tuple[DataFile, ...]:
    """The data files that a snapshot has added, from its manifests."""
    own = snapshot.snapshot_id
    manifests = [
        manifest
        for manifest in table.manifests(snapshot)
        if manifest.content == ManifestContent.DATA
        and manifest.added_snapshot_id == own
        and manifest.added_files_count != 0
    ]
    return tuple(
        entry.data_file
        for entries in read_manifests(table.io, manifests, table.specs, with_stats=False)
        for entry in entries
        if entry.status == EntryStatus.ADDED and entry.snapshot_id == own
    )


def _shared_deletes(delete_files: Iterable[DataFile]) -> dict[PartitionKey, list[DataFile]]:
    """Position delete files that may apply to any data file of their partition."""
    found: dict[PartitionKey, list[DataFile]] = {}
    for file in delete_files:
        if file.content == FileContent.POSITION_DELETES and file.deletes_from is None:
            found.setdefault(partition_key(file.spec_id, file.partition), []).append(file)
    return found


def _without_older(tasks: Mapping[str, FileScanTask], oldest: int) -> dict[str, FileScanTask]:
    """The tasks without equality deletes that are older than every live data file: a commit takes these out
    of the table, and a clean-up removes their files. Tasks of one scope go on sharing their groups, which are
    read once.
    """
    known: dict[int, EqualityDeletes] = {}

    def kept(group: EqualityDeletes) -> EqualityDeletes:
        if id(group) not in known:
            at = bisect_left(group.sequence_numbers, oldest)
            known[id(group)] = (
                replace(group, files=group.files[at:], sequence_numbers=group.sequence_numbers[at:])
                if at
                else group
            )
        return known[id(group)]

    after = {}
    for path, task in tasks.items():
        groups = tuple(map(kept, task.equality_deletes))
        is_same = all(new is old for new, old in zip(groups, task.equality_deletes, strict=True))
        after[path] = task if is_same else replace(task, equality_deletes=groups)
    return after
