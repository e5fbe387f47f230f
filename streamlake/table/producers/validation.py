"""Conflict validation: finds commits of other writers that conflict with an operation.

Runs on each commit attempt, before anything is written. The history is the branch's ancestry after
the snapshot that the operation started from. Of each snapshot in it, only the manifests that it added
are read. Serializable isolation refuses new data that the operation should have seen; snapshot
isolation only refuses lost deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamlake.errors import ConflictValidationError, DataInvalidError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.expressions.expressions import Expression
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.partition_keys import PartitionKey, may_contain, partition_key
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.manifests.file_matching import FileMatcher
from streamlake.table.table import Table

_ADDS_DATA = frozenset({"append", "overwrite"})
_REMOVES_DATA = frozenset({"overwrite", "replace", "delete"})
_REWRITES_DATA = frozenset({"overwrite", "replace"})
_ADDS_DELETES = frozenset({"overwrite", "delete", "replace"})


class Scope:
    """Which files a validation checks: those that may match a filter, or those of some partitions."""

    def __init__(
        self,
        base: TableMetadata,
        *,
        row_filter: Expression | None = None,
        partitions: Collection[tuple[int, tuple[Any, ...]]] | None = None,
    ) -> None:
        self._base = base
        self._matcher = None if row_filter is None else FileMatcher(base.schema, row_filter)
        self._tuples: dict[int, list[tuple[Any, ...]]] = {}
        self._keys: set[PartitionKey] = set()
        for spec_id, values in partitions or ():
            self._tuples.setdefault(spec_id, []).append(values)
            self._keys.add(partition_key(spec_id, values))

    def covers_manifest(self, manifest: ManifestFile) -> bool:
        """Whether the manifest may list a file in scope."""
        spec = self._base.spec_by_id(manifest.partition_spec_id)
        if self._matcher is not None:
            # A manifest that only lists removed files counts as well, so its
            # partitions decide, not its counts.
            return not manifest.may_have_live_files or self._matcher.manifest_might_match(manifest, spec)
        if manifest.content == ManifestContent.DELETES and spec.is_unpartitioned:
            return True
        return may_contain(manifest, self._tuples.get(spec.spec_id, []), spec, self._base.schema)

    def covers(self, file: DataFile) -> bool:
        """Whether the file may hold or delete rows in scope."""
        if self._matcher is not None:
            if file.content != FileContent.DATA:
                return not self._matcher.partition_excludes(file, self._base.spec_by_id(file.spec_id))
            return self._matcher.might_match(file, self._base.spec_by_id(file.spec_id))
        if (
            file.content == FileContent.EQUALITY_DELETES
            and self._base.spec_by_id(file.spec_id).is_unpartitioned
        ):
            return True
        return partition_key(file.spec_id, file.partition) in self._keys


@dataclass(frozen=True)
class History:
    """The snapshots that were committed to a branch since the operation started."""

    table: Table
    base: TableMetadata
    snapshots: tuple[Snapshot, ...]
    start_sequence_number: int

    @staticmethod
    def since(table: Table, base: TableMetadata, start_id: int | None, parent: Snapshot | None) -> History:
        """The history after `start_id`.

        Raises ConflictValidationError when that is not an ancestor of `parent` (expired or rolled back).
        """
        snapshots = []
        complete = start_id is None
        last: Snapshot | None = None
        for snapshot in base.ancestors(None if parent is None else parent.snapshot_id):
            if snapshot.snapshot_id == start_id:
                complete = True
                break
            snapshots.append(snapshot)
            last = snapshot
        if start_id is None:
            complete = last is None or last.parent_snapshot_id is None
        if not complete:
            raise ConflictValidationError(
                f"{table.name}: cannot find out what was committed since snapshot {start_id}: it is no "
                "longer an ancestor of the branch (rolled back, or expired); read the table again and redo "
                "the change"
            )
        start = None if start_id is None else base.snapshot(start_id)
        return History(table, base, tuple(snapshots), 0 if start is None else start.sequence_number)

    def _entries(
        self, operations: Collection[str], content: ManifestContent, scope: Scope
    ) -> Iterator[ManifestEntry]:
        for snapshot, manifest in self._manifests(operations, content, scope):
            for entry in read_manifest(self.table.io, manifest, self.base.specs_by_id):
                if entry.snapshot_id == snapshot.snapshot_id and scope.covers(entry.data_file):
                    yield entry

    def _manifests(
        self, operations: Collection[str], content: ManifestContent, scope: Scope
    ) -> Iterator[tuple[Snapshot, ManifestFile]]:
        for snapshot in self.snapshots:
            if snapshot.operation is not None and snapshot.operation not in operations:
                continue
            for manifest in self.table.manifests(snapshot):
                ours = manifest.content == content and manifest.added_snapshot_id == snapshot.snapshot_id
                if ours and scope.covers_manifest(manifest):
                    yield snapshot, manifest

    def added_deletes(self, scope: Scope) -> Iterator[DataFile]:
        """The delete files in scope that were added, whether they are still there or not."""
        for entry in self._entries(_ADDS_DELETES, ManifestContent.DELETES, scope):
            if _is_added(entry):
                yield entry.data_file

    def removed_data(self, scope: Scope) -> Iterator[DataFile]:
        """The data files in scope that were removed."""
        for entry in self._entries(_REMOVES_DATA, ManifestContent.DATA, scope):
            if _is_removed(entry):
                yield entry.data_file

    def refuse_added_data(self, scope: Scope, what: str) -> None:
        """Raise ConflictValidationError when a data file in scope was added; `what` describes the scope."""
        entries = self._entries(_ADDS_DATA, ManifestContent.DATA, scope)
        self._refuse(entries, _is_added, f"added data that may belong to {what}")

    def refuse_removed_data(self, scope: Scope, what: str) -> None:
        """Raise ConflictValidationError when a data file in scope was removed; `what` describes the scope."""
        entries = self._entries(_REMOVES_DATA, ManifestContent.DATA, scope)
        self._refuse(entries, _is_removed, f"removed data that may belong to {what}")

    def refuse_added_deletes(self, scope: Scope, what: str) -> None:
        """Raise ConflictValidationError when a delete file in scope was added; `what` describes the scope."""
        entries = self._entries(_ADDS_DELETES, ManifestContent.DELETES, scope)
        self._refuse(entries, _is_added, f"deleted rows that may belong to {what}")

    def refuse_deletes_for(self, files: Iterable[DataFile], scope: Scope) -> None:
        """Raise ConflictValidationError when a delete file for one of `files` was added.

        Spec: Scan Planning.
        """
        targets = {file.file_path: file for file in files}
        partitions = {partition_key(file.spec_id, file.partition) for file in targets.values()}

        def applies(entry: ManifestEntry) -> bool:
            file = entry.data_file
            if not _is_added(entry):
                return False
            if file.deletes_from is not None:
                return file.deletes_from in targets
            everywhere = (
                file.content == FileContent.EQUALITY_DELETES
                and self.base.spec_by_id(file.spec_id).is_unpartitioned
            )
            return everywhere or partition_key(file.spec_id, file.partition) in partitions

        entries = self._entries(_ADDS_DELETES, ManifestContent.DELETES, scope)
        self._refuse(entries, applies, "deleted rows of data files that are to be replaced")

    def refuse_removed_files(self, paths: Collection[str], scope: Scope, *, skip_deletes: bool) -> None:
        """Raise ConflictValidationError when one of these data files was removed.

        `skip_deletes` allows the removal of a file all of whose rows were deleted.
        """
        operations = _REWRITES_DATA if skip_deletes else _REMOVES_DATA
        entries = self._entries(operations, ManifestContent.DATA, scope)
        self._refuse(
            entries,
            lambda entry: _is_removed(entry) and entry.data_file.file_path in paths,
            "removed data files whose rows are deleted here",
        )

    def refuse_added_vectors(
        self, paths: Collection[str], replaced: Collection[tuple[str, int | None]], scope: Scope
    ) -> None:
        """Raise ConflictValidationError when one of these data files got another deletion vector.

        Those in `replaced` do not count.
        """
        self._refuse(
            self._entries(_ADDS_DELETES, ManifestContent.DELETES, scope),
            lambda entry: _is_added(entry) and _is_other_vector(entry.data_file, paths, replaced),
            "added a deletion vector for a data file that gets one here",
        )

    def _refuse(
        self, entries: Iterator[ManifestEntry], conflicts: Callable[[ManifestEntry], bool], what: str
    ) -> None:
        for entry in entries:
            if conflicts(entry):
                raise ConflictValidationError(
                    f"{self.table.name}: snapshot {entry.snapshot_id} of another writer {what}, for example"
                    f" {entry.data_file.file_path}; read the table again and redo the change"
                )


def _is_added(entry: ManifestEntry) -> bool:
    return entry.status == EntryStatus.ADDED


def _is_removed(entry: ManifestEntry) -> bool:
    return entry.status == EntryStatus.DELETED


def _is_other_vector(
    file: DataFile, paths: Collection[str], replaced: Collection[tuple[str, int | None]]
) -> bool:
    return file.is_deletion_vector and file.referenced_data_file in paths and file.identity not in replaced


def refuse_other_vectors(
    table: Table,
    base: TableMetadata,
    parent: Snapshot | None,
    vectors: Mapping[str, DataFile],
    replaced: Collection[tuple[str, int | None]],
) -> None:
    """Raise ConflictValidationError when a data file has a live deletion vector that is not `replaced`.

    The data files are those of `vectors` (by path). Reads the delete manifests of their partitions, for
    changes that do not say from which snapshot on to check.
    """
    scope = Scope(base, partitions=[(file.spec_id, file.partition) for file in vectors.values()])
    for manifest in table.manifests(parent):
        if manifest.content == ManifestContent.DELETES and scope.covers_manifest(manifest):
            for entry in read_manifest(
                table.io, manifest, base.specs_by_id, with_stats=False, live_only=True
            ):
                if _is_other_vector(entry.data_file, vectors, replaced):
                    raise ConflictValidationError(
                        f"{table.name}: {entry.data_file.referenced_data_file} has a deletion vector in "
                        f"{entry.data_file.file_path} that this change does not replace; read the table "
                        "again, merge both and redo the change"
                    )


def require_rows_match(files: Iterable[DataFile], row_filter: Expression, base: TableMetadata) -> None:
    """Raise DataInvalidError unless every row of the added files is known to match the overwrite's filter."""
    matcher = FileMatcher(base.schema, row_filter)
    for file in files:
        spec = base.spec_by_id(file.spec_id)
        if file.content == FileContent.DATA and not matcher.must_match(file, spec):
            raise DataInvalidError(
                f"{file.file_path} may hold rows that do not match the overwrite filter {row_filter}; they "
                "would be added again by the next overwrite: write only matching rows"
            )
