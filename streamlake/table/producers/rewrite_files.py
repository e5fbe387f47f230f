"""Rewrite: data files are replaced by others with the same rows, in one snapshot.

Iceberg's RewriteFiles, the operation of a compaction, but for what others commit meanwhile: there it is a
conflict, here it is carried over. New rows do not matter. Deletes by key apply to the new files as to the old
ones, because those have the data sequence number of the start. For deletes by position, and for old files
that are gone, the `CarryOver` gives delete files that take the same rows out of the new files: wherever the
rows of a file that is gone are now, or if they were deleted, they are no longer live where it had them.

Invariant: the live rows are the same before and after, whatever was committed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from streamlake.errors import ConflictValidationError
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.partition_keys import PartitionKey, partition_key
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.manifests.manifest_files import ManifestFiles
from streamlake.table.producers.delete_rules import NewDeletes
from streamlake.table.producers.snapshot_producer import SnapshotProducer
from streamlake.table.producers.validation import History, Scope
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head

CarryOver = Callable[[TableMetadata, Sequence[DataFile], Collection[str]], Sequence[DataFile]]
"""Called with a base, with all position delete files and deletion vectors added since the start that may
delete rows of old files, and with the paths of old files that are gone; gives the delete files for the new
files. Called again when there is more; what it gave before is then not committed.
"""
_MOST_GONE = 0.5
"""A group that has lost a larger share of its rows is not worth committing."""


@dataclass(frozen=True)
class Replacement:
    """One group of files: `removed` data files of the table, and `added` ones with their live rows.

    `moves` says whether rows change their partition or its spec.
    """

    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    moves: bool = False


class RewriteFiles(SnapshotProducer):
    """Replaces groups of data files, computed from the snapshot `start`.

    With `keeps_sequence_number` the new files have the sequence number of `start`, so that deletes by key of
    later commits apply to them; without, such deletes are conflicts. So is the removal of most of a group.
    After a ConflictValidationError `conflicting` has the numbers of the groups that caused it; it is empty
    where no group alone did.
    """

    def __init__(
        self,
        table: Table,
        start: Snapshot,
        groups: Sequence[Replacement],
        carry_over: CarryOver,
        *,
        branch: str = MAIN_BRANCH,
        keeps_sequence_number: bool = True,
    ) -> None:
        super().__init__(table, branch)
        self._start_version = table.format_version
        self._start = start
        self._groups = groups
        self._carry_over = carry_over
        self._keeps_sequence_number = keeps_sequence_number
        self._rules.fail_missing_files = True
        if keeps_sequence_number:
            self._new.data_sequence_number = start.sequence_number
        self._group_of: dict[str, int] = {}
        self._partitions: dict[PartitionKey, set[int]] = {}
        self._moving: dict[PartitionKey, set[int]] = {}
        for number, group in enumerate(groups):
            for file in group.removed:
                self._rules.remove_file(file)
                self._group_of[file.file_path] = number
                self._partitions.setdefault(_place(file), set()).add(number)
            for file in group.added:
                self._new.add(file, table.metadata)
            for file in (*group.removed, *group.added) if group.moves else ():
                self._moving.setdefault(_place(file), set()).add(number)
        self._seen_id = start.snapshot_id
        self._deletes: dict[tuple[str, int | None], DataFile] = {}
        self._gone: set[str] = set()
        self._carried: Sequence[DataFile] = ()
        self.conflicting: frozenset[int] = frozenset()

    @property
    def operation(self) -> str:
        """`replace`, for the snapshot summary."""
        return "replace"

    @property
    def carried(self) -> Sequence[DataFile]:
        """The delete files that the last attempt added."""
        return self._carried

    def validate(self, base: TableMetadata, parent: Snapshot | None) -> None:
        """Check what others have committed, and carry their deletes over.

        Raises ConflictValidationError where most of a group was removed, for deletes by key that would not do
        to the new files what they did to the old ones, a rollback, and an upgrade of the format version.
        """
        self._require_same_version(base, parent)
        history = History.since(self._table, base, self._seen_id, parent)
        if not history.snapshots:
            return
        old = Scope(base, partitions=_partitions(self._groups, "removed"))
        gone = {file.file_path for file in history.removed_data(old)} & self._group_of.keys() - self._gone
        deletes = self._new_deletes(base, history, old)
        if gone:
            self._gone |= gone
            self._require_worth_it()
            for path in gone:
                del self._rules.files[path]
        if gone or deletes:
            self._deletes.update({file.identity: file for file in deletes})
            for file in self._carried:
                self._new.remove(file)
            self._carried = self._carry_over(base, tuple(self._deletes.values()), frozenset(self._gone))
            for file in self._carried:
                self._new.add(file, base)
        self._seen_id = history.snapshots[0].snapshot_id

    def _new_deletes(self, base: TableMetadata, history: History, old: Scope) -> list[DataFile]:
        """The deletes by position that were added since the last look and may be for old files."""
        scope = old
        if self._moving:
            scope = Scope(base, partitions=_partitions(self._groups, "removed", "added"))
        found = []
        for file in history.added_deletes(scope):
            if file.content == FileContent.EQUALITY_DELETES:
                self._check_key_delete(base, file)
            elif file.deletes_from is None or file.deletes_from in self._group_of:
                found.append(file)
        return found

    def verify(self, base: TableMetadata, manifests: Sequence[ManifestFile], files: ManifestFiles) -> None:
        """Check the carried deletes against the new files, see `NewDeletes`."""
        NewDeletes(self._new.files, self._rules.files.values()).check(self._table.name)

    def _write_new_manifests(self, base: TableMetadata) -> None:
        """Also catches up with others, so that little of it is left while they wait for the commit turn."""
        base = self._operations.refresh()
        self.validate(base, branch_head(base, self._branch))
        super()._write_new_manifests(base)

    def _require_worth_it(self) -> None:
        few: set[int] = set()
        for number, group in enumerate(self._groups):
            rows = sum(file.record_count for file in group.removed)
            lost = sum(file.record_count for file in group.removed if file.file_path in self._gone)
            if lost > rows * _MOST_GONE:
                few.add(number)
        self._refuse(
            few, [self._rules.files[path] for path in self._gone if path in self._rules.files], "removed"
        )

    def _require_same_version(self, base: TableMetadata, parent: Snapshot | None) -> None:
        moved_on = parent is None or parent.snapshot_id != self._start.snapshot_id
        unnumbered = any(file.first_row_id is None for each in self._groups for file in each.removed)
        if base.format_version != self._start_version or (
            base.format_version >= 3 and unnumbered and moved_on
        ):
            raise ConflictValidationError(
                f"{self._table.name} was upgraded to format version {base.format_version} while its files "
                "were rewritten, and rows may have row ids by now; read the table again and redo the rewrite"
            )

    def _check_key_delete(self, base: TableMetadata, file: DataFile) -> None:
        everywhere = base.spec_by_id(file.spec_id).is_unpartitioned
        if not self._keeps_sequence_number:
            numbers = (
                set(range(len(self._groups))) if everywhere else self._partitions.get(_place(file), set())
            )
            self._refuse(numbers, [file], "deleted by key rows of")
        elif not everywhere:
            self._refuse(
                self._moving.get(_place(file), set()), [file], "deleted by key, within partitions, rows of"
            )

    def _refuse(self, numbers: set[int], files: Sequence[DataFile], what: str) -> None:
        if numbers:
            self.conflicting = frozenset(numbers)
            raise ConflictValidationError(
                f"{self._table.name}: another writer {what} data files that were being rewritten (see "
                f"{files[0].file_path}); read the table again and redo the rewrite"
            )


def _place(file: DataFile) -> PartitionKey:
    return partition_key(file.spec_id, file.partition)


def _partitions(groups: Sequence[Replacement], *sides: str) -> list[tuple[int, tuple[Any, ...]]]:
    files = [file for group in groups for side in sides for file in getattr(group, side)]
    return [(file.spec_id, file.partition) for file in files]
