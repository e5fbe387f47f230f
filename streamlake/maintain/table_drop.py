"""Drops a table with its files: what it refers to is found, its entry is removed, then the files are deleted.

    other tables of the catalog  ->  what refers to files  ->  the catalog forgets the table  ->  delete

The entry goes before the files, so that a stop at any place leaves a whole table or orphans, never a table
with missing files. Invariants: no file is deleted that lies in another table's location, and a table that the
catalog has under a second name is not purged.
"""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamlake.ahead import in_order
from streamlake.catalog.hadoop import HadoopCatalog, dropped_whole
from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.catalog.open import Catalog, CatalogOption, open_catalog, open_table, service_of
from streamlake.catalog.service_catalog import ServiceCatalog
from streamlake.errors import (
    DataInvalidError,
    FeatureUnsupportedError,
    InvalidOptionError,
    StreamlakeError,
    TableNotFoundError,
)
from streamlake.failpoints import failpoint
from streamlake.maintain.deletion import Deleted, delete_files, require_deleted
from streamlake.maintain.listing import listed
from streamlake.maintain.needed_files import staged_needs
from streamlake.maintain.reachable_files import storage_key
from streamlake.maintain.retention import require_deletable
from streamlake.maintain.snapshot_files import live_files, manifests_of
from streamlake.on_progress import OnProgress, unseen
from streamlake.storage.file_io import scheme_of
from streamlake.storage.local import local_path
from streamlake.storage.locations import metadata_version_of
from streamlake.table.table import Table

_AT_ONCE = 8
_METADATA_FILE = re.compile(r"(.*)/([^/]+)/(?:v\d+|\d+-[^/]*)(?:\.gz)?\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True)
class Dropped:
    """What a drop has done, or with `dry_run` would do.

    `files` are those that are deleted. Empty where files stay, and where a REST server deletes them
    (`by_server`).
    """

    name: str
    purged: bool
    files: tuple[str, ...]
    deleted: Deleted
    by_server: bool
    dry_run: bool


def drop_table(
    location: str,
    catalog: CatalogOption = None,
    *,
    purge: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress = unseen,
) -> Dropped:
    """Make the catalog forget a table; with `purge` delete its files as well, those of all snapshots.

    Raises TableNotFoundError; FeatureUnsupportedError for a table without a catalog service unless it is
    purged; InvalidOptionError where other tables use the files; StorageError where files are left.
    """
    service = service_of(catalog)
    opened = None if service is None else open_catalog(service)
    if not purge:
        if opened is None:
            open_table(location, catalog)
            raise FeatureUnsupportedError(dropped_whole(location))
        if isinstance(opened, HadoopCatalog) or dry_run:
            opened.metadata_location(location)
        if not dry_run:
            opened.drop_table(location)
        return Dropped(location, False, (), Deleted(), False, dry_run)
    try:
        table = open_table(location, catalog)
    except DataInvalidError as error:
        raise InvalidOptionError(
            f"{location} cannot be purged, because its files are not known: {error}. Drop it without its "
            "files"
        ) from error
    require_deletable(table.properties, table.name)
    files: tuple[str, ...] = ()
    is_served = isinstance(opened, ServiceCatalog)
    if not is_served:
        files = tuple(_files_of(table, on_progress))
    if opened is not None:
        _require_unshared(opened, location, table, files, on_progress)
    if dry_run:
        return Dropped(location, True, files, Deleted(), is_served, True)
    io, directory = table.io, table.location
    _forget(opened, location, table)
    failpoint("table-forgotten")
    deleted = delete_files(io, files, "files", on_progress)
    _remove_directories(directory)
    require_deleted(deleted, f"{location} was dropped")
    return Dropped(location, True, files, deleted, is_served, False)


def _forget(opened: Catalog | None, name: str, table: Table) -> None:
    if isinstance(table.operations, HadoopTableOperations):
        table.operations.remove()
    elif isinstance(opened, ServiceCatalog):
        opened.purge_table(name)
    elif opened is not None:
        opened.drop_table(name)


def _files_of(table: Table, on_progress: OnProgress) -> Iterator[str]:
    """The files of a table, each once, what lists files after the files. The current metadata comes last."""
    metadata, locations = table.metadata, table.locations
    manifests = list(manifests_of(table.io, metadata.snapshots, on_progress, may_lack=True))
    paths: list[str] = []
    for files in live_files(table.io, manifests, metadata.specs_by_id, on_progress, may_lack=True):
        paths += files
    paths += staged_needs(table).files
    apart = (locations.committables_directory, locations.index_directory)
    paths += (info.path for info in listed(table.io, apart))
    paths += (
        str(entry["statistics-path"])
        for entry in (*metadata.statistics, *metadata.partition_statistics)
        if entry.get("statistics-path")
    )
    paths += (manifest.manifest_path for manifest in manifests)
    paths += (each.manifest_list for each in metadata.snapshots if each.manifest_list)
    versions: set[str] = set()
    if isinstance(table.operations, HadoopTableOperations):
        # The directory is the table, so what its folders hold beside goes with it. Its versions go on their
        # own.
        own = set(_own_files(table))
        versions = {storage_key(path) for path in own if metadata_version_of(path) is not None}
        paths += sorted(own)
    else:
        paths += (entry.metadata_file for entry in metadata.metadata_log)
        paths.append(table.operations.metadata_path)  # type: ignore[attr-defined]
    yield from dict.fromkeys(path for path in paths if storage_key(path) not in versions)


def _own_files(table: Table) -> Iterator[str]:
    """The files in a table's folders of data and metadata, without those of tables that lie in there."""
    locations = table.locations
    inside = f"{storage_key(table.location).rstrip('/')}/"
    folders = (locations.metadata_directory, locations.root_metadata_directory, locations.data_directory)
    own = {storage_key(each) for each in folders[:2]}
    found = [info.path for info in listed(table.io, folders) if storage_key(info.path).startswith(inside)]
    nested = set()
    for path in found:
        match = _METADATA_FILE.fullmatch(storage_key(path))
        if match is not None and f"{match[1]}/{match[2]}" not in own:
            nested.add(f"{match[1]}/")
    for path in found:
        if not storage_key(path).startswith(tuple(nested)):
            yield path


def _require_unshared(
    catalog: Catalog, name: str, table: Table, files: Iterable[str], on_progress: OnProgress
) -> None:
    """Raise InvalidOptionError where another table of the catalog has this one's metadata, location or
    files.
    """
    own = f"{storage_key(table.location)}/"
    keys = sorted({storage_key(path) for path in files})
    known = frozenset(keys)
    others = [each for each in all_tables(catalog) if each != name]

    def look(other: str) -> list[tuple[str, str, str, str]]:
        try:
            pointer = catalog.metadata_location(other)
        except TableNotFoundError:
            return []
        try:
            found = catalog.load_table(other)
        except StreamlakeError:
            return [(other, pointer, "", "")]
        return [(other, pointer, found.uuid, f"{storage_key(found.location)}/")]

    for done, (other, pointer, uuid, location) in enumerate(in_order(others, look, workers=_AT_ONCE)):
        on_progress("other tables", done, len(others))
        what = None
        if storage_key(pointer) in known or (uuid and uuid == table.uuid):
            what = "is the same table under another name"
        elif location == own:
            what = "has the same location"
        elif location and not own.startswith(location):
            at = bisect_left(keys, location)
            if at < len(keys) and keys[at].startswith(location):
                what = f"has the location of one of its files ({keys[at]})"
        if what is not None:
            raise InvalidOptionError(
                f"{name} cannot be purged: {other} {what}. Nothing was deleted; drop {name} without its "
                "files, or drop the other table first"
            )


def all_tables(catalog: Catalog) -> Iterator[str]:
    """The names of all tables of a catalog, namespace after namespace."""
    waiting = [""]
    while waiting:
        namespace = waiting.pop(0)
        if namespace or isinstance(catalog, HadoopCatalog):
            yield from catalog.list_tables(namespace)
        waiting += [each for each in catalog.list_namespaces(namespace) if each != namespace]


def _remove_directories(location: str) -> None:
    """Remove the directories below and at a location that are empty now, from a local disk."""
    if scheme_of(location) not in ("", "file"):
        return
    for directory, _, _ in os.walk(local_path(location), topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
