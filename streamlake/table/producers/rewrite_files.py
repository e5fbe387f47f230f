"""Rewrite: data files are replaced by others with the same rows, in one snapshot.

Iceberg's RewriteFiles, the operation of a compaction. What others commit meanwhile decides, group by group,
whether it may be committed: a group whose files were removed conflicts; new rows do not matter; deletes by
position go to the `CarryOver`, which gives delete files that do the same to the new files; deletes by key
apply to the new files as to the old ones, because those have the data sequence number of the start.

Invariants: the live rows are the same before and after, whatever was deleted meanwhile; and no file of a
conflicting group is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

CarryOver = Callable[[TableMetadata, Sequence[DataFile]], Sequence[DataFile]]
"""Called with a base and all position delete files and deletion vectors that may delete rows of the replaced
files and were added since the start; gives the delete files to add in their place. Called again when there
are more; what it gave before is then not committed.
"""


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
    later commits apply to them; without, such deletes are conflicts. After a ConflictValidationError
    `conflicting` has the numbers of the groups that caused it; it is empty where no group alone did.
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

        Raises ConflictValidationError for removed files, deletes by key that would not do to the new files
        what they did to the old ones, a rollback, and an upgrade of the format version.
        """
        self._require_same_version(base, parent)
        history = History.since(self._table, base, self._seen_id, parent)
        if not history.snapshots:
            return
        scope = Scope(base, partitions=[(f.spec_id, f.partition) for f in self._rules.files.values()])
        gone = [file for file in history.removed_data(scope) if file.file_path in self._group_of]
        self._refuse({self._group_of[file.file_path] for file in gone}, gone, "removed")
        everything = Scope(base, partitions=self._all_partitions())
        found: list[DataFile] = []
        for file in history.added_deletes(everything if self._moving else scope):
            if file.content == FileContent.EQUALITY_DELETES:
                self._check_key_delete(base, file)
            elif file.deletes_from is None or file.deletes_from in self._group_of:
                found.append(file)
        if found:
            self._deletes.update({file.identity: file for file in found})
            for file in self._carried:
                self._new.remove(file)
            self._carried = self._carry_over(base, tuple(self._deletes.values()))
            for file in self._carried:
                self._new.add(file, base)
        self._seen_id = history.snapshots[0].snapshot_id

    def verify(self, base: TableMetadata, manifests: Sequence[ManifestFile], files: ManifestFiles) -> None:
        """Check the carried deletes against the new files, see `NewDeletes`."""
        NewDeletes(self._new.files, self._rules.files.values()).check(self._table.name)

    def _write_new_manifests(self, base: TableMetadata) -> None:
        """Also catches up with others, so that little of it is left while they wait for the commit turn."""
        base = self._operations.refresh()
        self.validate(base, branch_head(base, self._branch))
        super()._write_new_manifests(base)

    def _all_partitions(self) -> list[tuple[int, tuple[object, ...]]]:
        files = [file for group in self._groups for file in (*group.removed, *group.added)]
        return [(file.spec_id, file.partition) for file in files]

    def _require_same_version(self, base: TableMetadata, parent: Snapshot | None) -> None:
        moved_on = parent is None or parent.snapshot_id != self._start.snapshot_id
        unnumbered = any(file.first_row_id is None for file in self._rules.files.values())
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
