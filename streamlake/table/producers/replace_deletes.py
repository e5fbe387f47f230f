"""Replacement of delete files: the same rows are deleted, by other delete files.

Iceberg's RewriteFiles for deletes. The operation is `replace`, because no row changes. A new delete file
keeps the data sequence number of what it replaces, so a rewrite of data files that began before does not take
it for a new delete. Invariant: after the commit no data file has two deletion vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.partition_keys import PartitionPaths
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.manifests.manifest_files import ManifestFiles
from streamlake.table.manifests.manifest_filter import ManifestFilter, RemovalRules, oldest_sequence_number
from streamlake.table.options import ManifestOptions
from streamlake.table.producers.delete_rules import NewDeletes
from streamlake.table.producers.snapshot_producer import SnapshotContent, SnapshotProducer
from streamlake.table.producers.summary import SummaryCounts
from streamlake.table.table import Table


@dataclass(frozen=True)
class NewDelete:
    """A delete file with the data sequence number that it gets: the largest of those that it replaces."""

    file: DataFile
    sequence_number: int


@dataclass(frozen=True)
class DeleteReplacement:
    """What takes the place of what, on one base. All of `removed` is live there."""

    added: tuple[NewDelete, ...] = ()
    removed: tuple[DataFile, ...] = ()


Replacement = Callable[[TableMetadata, Snapshot | None], DeleteReplacement]


class ReplaceDeletes(SnapshotProducer):
    """Replaces delete files of a branch by others. `replacement` is asked on each attempt, with its base.

    It raises ConflictValidationError where what others have committed meanwhile cannot be taken into account.
    """

    def __init__(self, table: Table, replacement: Replacement, branch: str = MAIN_BRANCH) -> None:
        super().__init__(table, branch)
        self._replacement = replacement
        self._checked = NewDeletes((), ())

    @property
    def operation(self) -> str:
        """`replace`, for the snapshot summary."""
        return "replace"

    def content(self, base: TableMetadata, parent: Snapshot | None, files: ManifestFiles) -> SnapshotContent:
        """The manifests that stay, the delete manifests without what is replaced, and new ones."""
        change = self._replacement(base, parent)
        self._checked = NewDeletes([each.file for each in change.added], change.removed)
        self._checked.check(self._table.name)
        rules = RemovalRules(
            deletes={file.identity: file for file in change.removed},
            vectors=set(self._checked.vectors),
            fail_missing_files=True,
        )
        existing = self._table.manifests(parent)
        data = [each for each in existing if each.content == ManifestContent.DATA]
        deletes = [each for each in existing if each.content == ManifestContent.DELETES]
        oldest = oldest_sequence_number(data, base.last_sequence_number + 1)
        kept = ManifestFilter(files, rules).filter_deletes(deletes, base, (), oldest)
        new = _new_manifests(change.added, files)
        left = [
            each for each in kept.manifests if each.may_have_live_files or _is_of(each, files.snapshot_id)
        ]
        options = ManifestOptions.parse(base.properties)
        merged, merged_away = self._merger.merge(new + left, options, frozenset())
        counts, paths = SummaryCounts(), PartitionPaths(base)
        counts.deleted_duplicate_files = kept.duplicates
        for file in kept.removed:
            counts.remove(file, paths.path_of(file))
        for each in change.added:
            counts.add(each.file, paths.path_of(each.file))
        live = [each for each in data if each.may_have_live_files]
        return SnapshotContent([*live, *merged], counts, kept.replaced + merged_away)

    def verify(self, base: TableMetadata, manifests: Sequence[ManifestFile], files: ManifestFiles) -> None:
        """Check the delete files against the manifests that were written, see `NewDeletes.check_written`."""
        self._checked.check_written(manifests, files, self._table.name)


def _is_of(manifest: ManifestFile, snapshot_id: int) -> bool:
    return manifest.added_snapshot_id == snapshot_id


def _new_manifests(added: Sequence[NewDelete], files: ManifestFiles) -> list[ManifestFile]:
    """One manifest for each spec; the deletes keep their sequence numbers."""
    by_spec: dict[int, list[ManifestEntry]] = {}
    for each in added:
        entry = ManifestEntry(EntryStatus.ADDED, files.snapshot_id, each.sequence_number, None, each.file)
        by_spec.setdefault(each.file.spec_id, []).append(entry)
    return [files.write(entries, spec_id, ManifestContent.DELETES) for spec_id, entries in by_spec.items()]
