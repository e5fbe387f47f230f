"""Old metadata files: versions that have left the metadata log, and were never deleted.

A commit deletes the version that leaves the log, where `write.metadata.delete-after-commit.enabled` says so.
What was written before that was set, or by a process that was killed in between, stays. Invariant: only
ancestors of the current version are deleted, and only where the table allows it. A file system table has its
directory for itself, so these are its lower numbers. In a catalog another table may write its metadata to the
same directory (one that was registered twice, or created where another was dropped): there a version is an
ancestor when the log of a later one names it.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.failpoints import failpoint
from streamlake.formats.manifests.metadata_json import read_metadata
from streamlake.maintain.deletion import Deleted, delete_files, require_deleted
from streamlake.maintain.reachable_files import storage_key
from streamlake.maintain.retention import require_deletable
from streamlake.on_progress import OnProgress, unseen
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.file_io import FileInfo
from streamlake.storage.locations import metadata_version_of
from streamlake.table.options import MetadataOptions
from streamlake.table.table import Table


@dataclass(frozen=True)
class OldMetadata:
    """The metadata files before the log: how many, their bytes, whether the table `allows` to delete them,
    and what was deleted.
    """

    files: int
    bytes: int
    allows: bool
    deleted: Deleted
    dry_run: bool


def remove_old_metadata(
    table: Table, *, dry_run: bool = False, on_progress: OnProgress = unseen
) -> OldMetadata:
    """Delete the metadata files that are older than the metadata log.

    Nothing is deleted where `write.metadata.delete-after-commit.enabled` is not true. Raises StorageError
    where files could not be deleted.
    """
    metadata = table.refresh().metadata
    require_deletable(metadata.properties, table.name)
    allows = MetadataOptions.parse(metadata.properties).delete_after_commit
    is_alone = isinstance(table.operations, HadoopTableOperations)
    found = (_lower_numbers if is_alone else _named_by_ancestors)(table, metadata)
    deleted = Deleted()
    if allows and not dry_run:
        deleted = delete_files(
            table.io,
            [info.path for info in found],
            "metadata files",
            on_progress,
            after_group=lambda: failpoint("old-metadata-deleted"),
        )
        require_deleted(deleted, f"{table.name}: old metadata files were deleted")
    return OldMetadata(len(found), sum(info.size for info in found), allows, deleted, dry_run)


def _lower_numbers(table: Table, metadata: TableMetadata) -> list[FileInfo]:
    named = (metadata_version_of(entry.metadata_file) for entry in metadata.metadata_log)
    oldest = min((version for version in named if version is not None), default=0)
    files, _ = table.io.list_level(table.locations.root_metadata_directory)
    return [info for info in files if (metadata_version_of(info.path) or oldest) < oldest]


def _named_by_ancestors(table: Table, metadata: TableMetadata) -> list[FileInfo]:
    directories = {entry.metadata_file.rpartition("/")[0]: None for entry in reversed(metadata.metadata_log)}
    directories[table.locations.metadata_directory] = None
    folders = {storage_key(directory): directory for directory in directories}
    there = {
        storage_key(info.path): info
        for folder in folders.values()
        for info in table.io.list_level(folder)[0]
        if info.path.endswith((".metadata.json", ".metadata.json.gz"))
    }
    log, found = metadata.metadata_log, []
    seen = {storage_key(entry.metadata_file) for entry in log}
    while log:
        keys = [key for entry in log if (key := storage_key(entry.metadata_file)) in there]
        if not keys:
            break
        log = read_metadata(table.io, there[keys[0]].path).metadata_log
        earlier = [key for entry in log if (key := storage_key(entry.metadata_file)) not in seen]
        found += [there[key] for key in earlier if key in there]
        if not earlier:
            break
        seen.update(earlier)
    return found
