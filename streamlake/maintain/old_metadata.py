"""Old metadata files: versions that have left the metadata log, and were never deleted.

A commit deletes the version that leaves the log, where `write.metadata.delete-after-commit.enabled` says so.
What was written before that was set, or by a process that was killed in between, stays. Invariant: only
versions older than every version that the log names are deleted, and only where the table allows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamlake.failpoints import failpoint
from streamlake.maintain.deletion import Deleted, delete_files, require_deleted
from streamlake.maintain.reachable_files import storage_key
from streamlake.maintain.retention import require_deletable
from streamlake.on_progress import OnProgress, unseen
from streamlake.storage.locations import metadata_version_of
from streamlake.table.options import MetadataOptions
from streamlake.table.table import Table

_SERVICE_VERSION = re.compile(r"(\d+)-[^/]*\.metadata\.json")


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
    named = [entry.metadata_file for entry in metadata.metadata_log]
    # The file of the current version, where the operations know it, is newer than the log.
    versions = [version for path in named if (version := version_of(path)) is not None]
    found = []
    if versions:
        files, _ = table.io.list_level(table.locations.metadata_directory)
        if table.locations.root_metadata_directory != table.locations.metadata_directory:
            files = [*files, *table.io.list_level(table.locations.root_metadata_directory)[0]]
        keys = set(map(storage_key, named))
        for info in files:
            version = version_of(info.path)
            if version is not None and version < min(versions) and storage_key(info.path) not in keys:
                found.append(info)
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


def version_of(path: str) -> int | None:
    """The number of a metadata file, of a Hadoop table or a catalog service's; None for any other file."""
    version = metadata_version_of(path)
    if version is not None:
        return version
    match = _SERVICE_VERSION.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else None
