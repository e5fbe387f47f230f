"""Orphan removal: files in a table's folders that nothing refers to are found, and deleted when they are old.

    list the folders  ->  staged checkpoints  ->  metadata, manifests of all snapshots  ->  what is left

In this order, so that what others commit meanwhile is known at the end. Only the table's own folders of data
and metadata are looked at. Invariants: never an orphan are files that are younger than the minimum age, that
any snapshot, staged checkpoint or the metadata log names, files of the key index and staged checkpoints, and
whatever lies in another table's location.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamlake import clock
from streamlake.errors import InvalidOptionError
from streamlake.failpoints import failpoint
from streamlake.maintain.deletion import Deleted, delete_files, require_deleted
from streamlake.maintain.listing import listed
from streamlake.maintain.needed_files import staged_needs
from streamlake.maintain.prefixes import EqualPrefixes, NeededPaths, PrefixMismatch, mismatch_error
from streamlake.maintain.reachable_files import Orphan, is_temporary, storage_key
from streamlake.maintain.retention import require_deletable
from streamlake.maintain.snapshot_files import live_files, manifests_of
from streamlake.on_progress import OnProgress, unseen
from streamlake.storage.file_info import FileInfo
from streamlake.table.table import Table

MIN_AGE_MS = 3 * 24 * 3600 * 1000
"""The age in milliseconds that an orphan has by default."""
LEAST_AGE_MS = 24 * 3600 * 1000
"""A smaller minimum age is refused: files that are being written are in no snapshot yet."""
_EVERY = 1000
_METADATA_FILE = re.compile(r"(.*)/[^/]+/(?:v\d+|\d+-[^/]*)(?:\.gz)?\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True)
class Orphans:
    """The orphans of a table, oldest first, and what was deleted of them.

    `looked_at` counts the files in the table's folders. `not_listed` are folders in which orphans
    cannot be separated from other tables' files. `left` are files that differ from needed ones in scheme or
    authority.
    """

    orphans: tuple[Orphan, ...]
    looked_at: int
    not_listed: tuple[str, ...]
    left: int
    deleted: Deleted
    dry_run: bool

    @property
    def bytes(self) -> int:
        """The size of the orphans."""
        return sum(orphan.size for orphan in self.orphans)


def remove_orphans(
    table: Table,
    *,
    older_than_ms: int | None = None,
    dry_run: bool = False,
    prefix_mismatch_mode: str | PrefixMismatch = PrefixMismatch.ERROR,
    equal_schemes: Mapping[str, str] | None = None,
    equal_authorities: Mapping[str, str] | None = None,
    on_progress: OnProgress = unseen,
) -> Orphans:
    """Delete the files of the table's folders that nothing refers to and that were last changed before a time
    (epoch milliseconds; None: three days ago).

    Raises InvalidOptionError for a time less than a day ago, DataInvalidError for prefixes that differ and
    for metadata that cannot be read, StorageError where files could not be deleted.
    """
    mode = PrefixMismatch.parse(prefix_mismatch_mode)
    now_ms = clock.now_ms()
    before_ms = now_ms - MIN_AGE_MS if older_than_ms is None else older_than_ms
    if before_ms > now_ms - LEAST_AGE_MS:
        raise InvalidOptionError(
            f"table {table.name}: orphans must be at least 24 hours old, because files that are being "
            "written are in no snapshot yet; give an earlier older_than"
        )
    require_deletable(table.properties, table.name)
    folders, not_listed = _folders(table)
    old, looked_at = _old_files(table, folders, before_ms, on_progress)
    needed = _needed(table, EqualPrefixes.of(equal_schemes, equal_authorities), on_progress)
    orphans: list[Orphan] = []
    differing = []
    for info in old:
        if needed.has(info.path):
            continue
        prefixes = needed.differing(info.path)
        if prefixes is not None:
            differing.append((info.path, prefixes))
            if mode is not PrefixMismatch.DELETE:
                continue
        orphans.append(Orphan(info.path, info.size, info.modified_ms, _kind(table, info.path)))
    if differing and mode is PrefixMismatch.ERROR:
        raise mismatch_error(table.name, differing)
    orphans.sort(key=lambda orphan: orphan.modified_ms)
    left = len(differing) if mode is PrefixMismatch.IGNORE else 0
    deleted = Deleted()
    if not dry_run:
        deleted = delete_files(
            table.io,
            [orphan.path for orphan in orphans],
            "orphans",
            on_progress,
            after_group=lambda: failpoint("orphans-deleted"),
        )
        require_deleted(deleted, f"{table.name}: orphans were deleted")
    return Orphans(tuple(orphans), looked_at, tuple(not_listed), left, deleted, dry_run)


def _folders(table: Table) -> tuple[list[str], list[str]]:
    """The folders to list, and those outside of the table's location, which may be other tables' as well."""
    locations = table.locations
    wanted = dict.fromkeys(
        (locations.metadata_directory, locations.root_metadata_directory, locations.data_directory)
    )
    inside = _folder(table.location)
    return (
        [each for each in wanted if _folder(each).startswith(inside)],
        [each for each in wanted if not _folder(each).startswith(inside)],
    )


def _old_files(
    table: Table, folders: Collection[str], before_ms: int, on_progress: OnProgress
) -> tuple[list[FileInfo], int]:
    """The files that may be orphans by their place and age, and how many files there are."""
    locations = table.locations
    apart = (_folder(locations.index_directory), _folder(locations.committables_directory))
    own = {storage_key(each) for each in (locations.metadata_directory, locations.root_metadata_directory)}
    old: list[FileInfo] = []
    nested: set[str] = set()
    count = 0
    for info in listed(table.io, folders):
        count += 1
        if count % _EVERY == 0:
            on_progress("files", count, None)
        key = storage_key(info.path)
        match = _METADATA_FILE.fullmatch(key)
        if match is not None:
            # Versions that have left the metadata log are not orphans, but history: see old_metadata.
            if key.rpartition("/")[0] not in own:
                nested.add(f"{match[1]}/")
        elif key.startswith(apart) or key.endswith("/version-hint.text"):
            continue
        elif info.modified_ms < before_ms:
            old.append(info)
    if nested:
        others = tuple(nested)
        old = [info for info in old if not storage_key(info.path).startswith(others)]
    return old, count


def _needed(table: Table, equal: EqualPrefixes, on_progress: OnProgress) -> NeededPaths:
    """Every path that the table names now: asked for after the folders were listed."""
    needs = staged_needs(table)
    metadata = table.refresh().metadata
    needed = NeededPaths(equal)
    needed.add(needs.files)
    needed.add(entry.metadata_file for entry in metadata.metadata_log)
    needed.add(each.manifest_list for each in metadata.snapshots if each.manifest_list)
    needed.add(
        str(entry["statistics-path"])
        for entry in (*metadata.statistics, *metadata.partition_statistics)
        if entry.get("statistics-path")
    )
    manifests = list(manifests_of(table.io, metadata.snapshots, on_progress))
    needed.add(manifest.manifest_path for manifest in manifests)
    for files in live_files(table.io, manifests, metadata.specs_by_id, on_progress):
        needed.add(files)
    return needed


def _kind(table: Table, path: str) -> str:
    if is_temporary(path):
        return "temporary"
    return "data" if storage_key(path).startswith(_folder(table.locations.data_directory)) else "metadata"


def _folder(path: str) -> str:
    return f"{storage_key(path).rstrip('/')}/"
