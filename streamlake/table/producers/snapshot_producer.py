"""The snapshot producer: builds a snapshot on the newest version and swaps it in, again after a conflict.

The base of every operation that changes data. One attempt: refresh, check and validate against the current
version, gather manifests (new ones are written once and reused), write the manifest list, swap the metadata.

Invariants:

- There is exactly one snapshot per producer.
- After CommitStateUnknownError the table is searched for our snapshot id, and nothing is cleaned up unless it
  is found.
- A conflict may be with our own request, which something on the way repeated. So the table is checked before
  each new attempt and before cleaning up.
- After a certain failure only files that this producer wrote are deleted, never data files and never a
  manifest that was handed in (spec: Commit Conflict Resolution and Retry).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlake
from streamlake import ids
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidOptionError,
    StorageError,
    StreamlakeError,
)
from streamlake.failpoints import failpoint
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.formats.manifests.manifest_lists import assign_ids, write_manifest_list
from streamlake.formats.manifests.manifests import with_counts
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.spec.metadata.partition_keys import PartitionPaths
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.manifests.manifest_files import ManifestFiles
from streamlake.table.manifests.manifest_filter import ManifestFilter, RemovalRules, oldest_sequence_number
from streamlake.table.manifests.manifest_merging import ManifestMerger
from streamlake.table.options import ManifestOptions, RetryOptions, partition_summary_limit
from streamlake.table.producers.new_files import NewFiles
from streamlake.table.producers.summary import SummaryCounts, totals
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import (
    branch_head,
    change_time_ms,
    require_writable,
    with_properties,
    with_snapshot,
)
from streamlake.table.updates.retries import found_after_unknown_state, retry_on_conflict

Check = Callable[[TableMetadata], None]


@dataclass(frozen=True)
class SnapshotContent:
    """The manifests of a new snapshot, with the counts for its summary."""

    manifests: list[ManifestFile]
    counts: SummaryCounts
    replaced: int


class SnapshotProducer:
    """Collects changes; `commit()` makes them one snapshot of `branch`. Use it once, from one thread."""

    def __init__(self, table: Table, branch: str = MAIN_BRANCH) -> None:
        self._table = table
        self._operations = table.operations
        self._branch = branch
        self._new = NewFiles()
        self._rules = RemovalRules()
        self._summary: dict[str, str] = {}
        self._properties: dict[str, str] = {}
        self._checks: list[Check] = []
        self._files: ManifestFiles | None = None
        self._filter: ManifestFilter
        self._merger: ManifestMerger
        self._manifest_lists: dict[str, tuple[ManifestFile, ...]] = {}
        self._in_doubt = False
        branch_head(table.metadata, branch)

    @property
    def operation(self) -> str:
        """`append`, `overwrite` or `delete`, for the snapshot summary."""
        raise NotImplementedError

    def validate(self, base: TableMetadata, parent: Snapshot | None) -> None:
        """Raise ConflictValidationError when the change must not be committed onto this base.

        Called on each attempt.
        """

    def verify(self, base: TableMetadata, manifests: Sequence[ManifestFile], files: ManifestFiles) -> None:
        """Raise when the manifests of the new snapshot must not be committed.

        Called on each attempt, last.
        """

    def set_summary(self, values: Mapping[str, str]) -> None:
        """Add entries to the snapshot's summary. Counters cannot be overridden."""
        self._summary.update({key: str(value) for key, value in values.items()})

    def set_properties(self, values: Mapping[str, str]) -> None:
        """Set table properties in the same commit."""
        self._properties.update({key: str(value) for key, value in values.items()})

    def add_check(self, check: Check) -> None:
        """Call `check` with the refreshed base of each attempt. An error that it raises ends the commit."""
        self._checks.append(check)

    @property
    def may_be_committed(self) -> bool:
        """Whether the snapshot is in the table, or perhaps: a swap was tried, and did not certainly fail."""
        return self._in_doubt

    def commit(self) -> Snapshot:
        """Commit the snapshot; returns it as the table has it.

        Raises CommitConflictError (retries used up), ConflictValidationError, or any error that a check
        raises (all: not committed, own files cleaned up), or CommitStateUnknownError (perhaps
        committed, nothing cleaned up).
        """
        if self._manifest_lists:
            raise InvalidOptionError(
                "this operation was committed before: make a new one for the next snapshot"
            )
        base = self._operations.current()
        try:
            self._write_new_manifests(base)
            metadata = retry_on_conflict(RetryOptions.for_commit(base.properties), self._attempt)
        except CommitStateUnknownError as unknown:
            metadata = self._resolve(unknown)
        except CommitConflictError:
            arrived = self._arrived_after_all()
            if arrived is None:
                raise
            metadata = arrived
        except BaseException:
            if not self._in_doubt:
                self._clean_up(committed=None)
            raise
        snapshot = metadata.snapshot(self._snapshot_id)
        if snapshot is None:
            raise CommitStateUnknownError(
                f"{self._table.name}: the catalog took snapshot {self._snapshot_id}, but its metadata does "
                "not show it; read the table before anything else"
            )
        self._clean_up(committed=snapshot)
        return snapshot

    @property
    def _snapshot_id(self) -> int:
        assert self._files is not None
        return self._files.snapshot_id

    def _write_new_manifests(self, base: TableMetadata) -> None:
        """Write the manifests that every attempt needs, before the commit turn makes others wait."""
        require_writable(base, self._table.name)
        self._new.manifests(ManifestContent.DATA, self._files_for(base))

    def _attempt(self) -> TableMetadata:
        with self._operations.commit_turn():
            base = self._operations.refresh()
            if self._is_in(base):
                self._in_doubt = True
                return base
            require_writable(base, self._table.name)
            for check in self._checks:
                check(base)
            files = self._files_for(base)
            parent = branch_head(base, self._branch)
            self.validate(base, parent)
            content = self.content(base, parent, files)
            self.verify(base, content.manifests, files)
            snapshot = self._write_snapshot(base, parent, content, files)
            new = with_snapshot(base, snapshot, self._branch)
            return self._swap(base, with_properties(new, self._properties))

    def _swap(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        failpoint("before-swap")
        self._in_doubt = True
        try:
            committed = self._operations.commit(base, new)
        except CommitStateUnknownError:
            raise
        except StreamlakeError:
            self._in_doubt = False
            raise
        except Exception as error:
            raise CommitStateUnknownError(
                f"{self._table.name}: the catalog failed unexpectedly: {error!r}"
            ) from error
        # From here on nothing may be cleaned up as if it were not committed, whatever interrupts us.
        failpoint("after-swap")
        return committed

    def _files_for(self, base: TableMetadata) -> ManifestFiles:
        if self._files is None:
            snapshot_id = ids.new_snapshot_id()
            while snapshot_id == 0 or snapshot_id in base.snapshots_by_id:
                snapshot_id = ids.new_snapshot_id()
            self._files = ManifestFiles(self._table.io, base, snapshot_id, self._table.held_entries)
            self._filter = ManifestFilter(self._files, self._rules)
            self._merger = ManifestMerger(self._files)
        self._files.rebase(base)
        return self._files

    def content(self, base: TableMetadata, parent: Snapshot | None, files: ManifestFiles) -> SnapshotContent:
        """The manifests of the new snapshot on this base. Called on each attempt."""
        existing = self._table.manifests(parent)
        data = [manifest for manifest in existing if manifest.content == ManifestContent.DATA]
        deletes = [manifest for manifest in existing if manifest.content == ManifestContent.DELETES]
        counts, paths = SummaryCounts(), PartitionPaths(base)
        replaced = 0
        if self._rules:
            kept = self._filter.filter_data(data, base)
            added = self._new.oldest_data
            newest = base.last_sequence_number + 1 if added is None else added
            oldest = min(newest, oldest_sequence_number(kept.manifests, newest))
            kept_deletes = self._filter.filter_deletes(deletes, base, kept.removed, oldest)
            data, deletes = kept.manifests, kept_deletes.manifests
            replaced = kept.replaced + kept_deletes.replaced
            counts.deleted_duplicate_files = kept.duplicates + kept_deletes.duplicates
            for file in (*kept.removed, *kept_deletes.removed):
                counts.remove(file, paths.path_of(file))
        for file in self._new.files:
            counts.add(file, paths.path_of(file))
        options = ManifestOptions.parse(base.properties)
        staged = self._new.staged_paths
        manifests: list[ManifestFile] = []
        for content, rest in ((ManifestContent.DATA, data), (ManifestContent.DELETES, deletes)):
            gathered = self._new.manifests(content, files) + [part for part in rest if self._is_kept(part)]
            merged, merged_away = self._merger.merge(gathered, options, staged)
            manifests += merged
            replaced += merged_away
        return SnapshotContent(manifests, counts, replaced)

    def _is_kept(self, manifest: ManifestFile) -> bool:
        return manifest.may_have_live_files or manifest.added_snapshot_id == self._snapshot_id

    def _write_snapshot(
        self, base: TableMetadata, parent: Snapshot | None, content: SnapshotContent, files: ManifestFiles
    ) -> Snapshot:
        sequence_number = base.last_sequence_number + 1
        parent_id = None if parent is None else parent.snapshot_id
        first_row_id = (base.next_row_id or 0) if base.format_version >= 3 else None
        manifests, next_row_id = assign_ids(
            [self._counted(manifest) for manifest in content.manifests],
            files.snapshot_id,
            sequence_number,
            first_row_id,
        )
        path = files.locations.manifest_list(
            files.snapshot_id, len(self._manifest_lists) + 1, files.commit_uuid
        )
        self._manifest_lists[path] = tuple(manifests)
        write_manifest_list(
            self._table.io,
            path,
            manifests,
            files.snapshot_id,
            parent_id,
            sequence_number,
            base.format_version,
            first_row_id,
            AvroCompression.from_properties(base.properties, "write.manifest"),
        )
        failpoint("manifest-list-written")
        return Snapshot(
            snapshot_id=files.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            timestamp_ms=change_time_ms(base),
            manifest_list=path,
            summary=self._full_summary(base, parent, content, files),
            schema_id=base.current_schema_id,
            first_row_id=first_row_id,
            added_rows=None if first_row_id is None or next_row_id is None else next_row_id - first_row_id,
        )

    def _counted(self, manifest: ManifestFile) -> ManifestFile:
        """The manifest with row counts, which row ids are assigned by and old manifest lists lack."""
        uncounted = None in (manifest.added_rows_count, manifest.existing_rows_count)
        return with_counts(self._table.io, manifest) if uncounted else manifest

    def _full_summary(
        self, base: TableMetadata, parent: Snapshot | None, content: SnapshotContent, files: ManifestFiles
    ) -> dict[str, str]:
        counted = content.counts.as_summary(partition_summary_limit(base.properties))
        own = files.snapshot_id
        created = sum(1 for part in content.manifests if part.added_snapshot_id in (own, None))
        counted["manifests-created"] = str(created)
        counted["manifests-kept"] = str(len(content.manifests) - created)
        counted["manifests-replaced"] = str(content.replaced)
        if files.entries_read:
            counted["entries-processed"] = str(files.entries_read)
        counted.update(totals(None if parent is None else parent.summary, counted))
        engine = {"engine-name": "streamlake", "engine-version": streamlake.__version__}
        return {"operation": self.operation, **self._summary, **counted, **engine}

    def _is_in(self, metadata: TableMetadata) -> bool:
        return bool(self._manifest_lists) and self._snapshot_id in metadata.snapshots_by_id

    def _arrived_after_all(self) -> TableMetadata | None:
        """The table's metadata if it shows our snapshot in spite of the last conflict; else None.

        Then own files are cleaned up, but only when the table could be read.
        """
        try:
            metadata = self._operations.refresh()
        except (StreamlakeError, OSError):
            return None
        if self._is_in(metadata):
            return metadata
        self._clean_up(committed=None)
        return None

    def _resolve(self, unknown: CommitStateUnknownError) -> TableMetadata:
        options = RetryOptions.for_status_check(self._operations.current().properties)
        own = self._snapshot_id
        found = found_after_unknown_state(
            self._operations, options, lambda metadata: own in metadata.snapshots_by_id
        )
        if found is None:
            raise CommitStateUnknownError(
                f"{unknown}; snapshot {own} was not found in table {self._table.name} afterwards, but it may "
                "still arrive: nothing was deleted; look for this snapshot id before writing the same data "
                "again"
            ) from unknown
        return found

    def _clean_up(self, *, committed: Snapshot | None) -> None:
        """Delete own files that no version of the table refers to.

        A failure leaves an orphan and is no error.
        """
        failpoint("before-clean-up")
        kept: Sequence[ManifestFile] = ()
        if committed is not None and committed.manifest_list is not None:
            known = self._manifest_lists.get(committed.manifest_list)
            if known is None:
                return
            kept = known
            self._table.remember_manifests(committed.manifest_list, known)
            if self._files is not None:
                self._files.hold_committed(known)
        for path in self._manifest_lists:
            if committed is None or path != committed.manifest_list:
                try:
                    self._table.io.delete(path)
                except StorageError:
                    continue
        if self._files is not None:
            self._files.delete_written(keep={manifest.manifest_path for manifest in kept})
