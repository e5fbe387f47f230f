"""Commits to tables without a catalog service: one metadata file per version, created exclusively.

Implements `TableOperations` for HadoopTables' layout. The swap is the exclusive create of `v{N+1}`: of all
writers that saw version N, exactly one succeeds. After an own commit the metadata stays in memory, and a
refresh that finds nothing new reads nothing but names. On an object store, where each look is a request, a
version that was the newest a moment ago is looked at again by its successor's name alone, and a commit builds
on it without another look: the swap decides. Invariant: `version-hint.text` is advice; the version
files are the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from streamlake import clock
from streamlake.catalog.commit_turn import commit_turn
from streamlake.catalog.metadata_log import delete_superseded, logged
from streamlake.catalog.metadata_versions import MetadataVersions
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    InvalidOptionError,
    MissingFileError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.failpoints import failpoint
from streamlake.formats.manifests.metadata_json import metadata_bytes, read_metadata
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.conditional_put import require_conditional_put
from streamlake.storage.durability import wants_fsync
from streamlake.storage.file_io import FileIO, Fingerprint, scheme_of
from streamlake.storage.local import local_path
from streamlake.storage.object_settings import OBJECT_SCHEMES
from streamlake.storage.object_store import was_refused
from streamlake.table.options import MetadataOptions

_READ_ATTEMPTS = 5
_FRESH_SECONDS = 30.0
"""So long a version on an object store is taken to exist. A commit looks again: see `_require_successor`."""
_KEPT_WHILE_FRESH = 20
"""But only where writers delete it after so many newer ones at the earliest."""


@dataclass(frozen=True)
class _Version:
    """One metadata version that was read or written."""

    number: int
    path: str
    fingerprint: Fingerprint | None
    metadata: TableMetadata


class HadoopTableOperations:
    """One table directory. Messages call the table `name` (default: its location)."""

    def __init__(self, location: str, io: FileIO, name: str | None = None) -> None:
        self._location = location.rstrip("/")
        self._io = io
        self._name = name or self._location
        self._versions = MetadataVersions(io, self._location)
        self._current: _Version | None = None
        self._is_remote = scheme_of(self._location) in OBJECT_SCHEMES
        self._newest_at: float | None = None
        self._in_turn = False

    @property
    def name(self) -> str:
        """The name of the table in messages."""
        return self._name

    @property
    def location(self) -> str:
        """The table's base location."""
        return self._location

    @property
    def io(self) -> FileIO:
        """The storage of the table's metadata and data files."""
        return self._io

    @property
    def metadata_path(self) -> str:
        """The metadata file of the version that `current` returns."""
        self.current()
        assert self._current is not None
        return self._current.path

    def exists(self) -> bool:
        """Whether there is a table in this directory."""
        return self._versions.newest() is not None

    def current(self) -> TableMetadata:
        """The metadata as last seen."""
        return self.refresh() if self._current is None else self._current.metadata

    def refresh(self) -> TableMetadata:
        """The newest metadata; parsed only when there is a newer version.

        Raises TableNotFoundError, and DataInvalidError when the file is not table metadata, or another table
        has replaced this one in the directory.
        """
        seen = self._current
        if seen is not None and self._is_fresh():
            options = MetadataOptions.parse(seen.metadata.properties)
            if self._in_turn or not self._versions.follows(seen.number, gzip=options.gzip):
                return seen.metadata
        if seen is not None and self._versions.fingerprint(seen.path) != seen.fingerprint:
            # Removed by delete-after-commit, or the table was dropped: start again from the files that exist.
            return self._read_newest(None)
        return self._read_newest(None if seen is None else seen.number)

    def _is_fresh(self) -> bool:
        """Whether the current version, on an object store, was the newest one a moment ago."""
        if not self._is_remote or self._newest_at is None or self._current is None:
            return False
        options = MetadataOptions.parse(self._current.metadata.properties)
        if options.delete_after_commit and options.previous_versions_max < _KEPT_WHILE_FRESH:
            return False
        return clock.monotonic() - self._newest_at < _FRESH_SECONDS

    def _read_newest(self, known: int | None) -> TableMetadata:
        for _ in range(_READ_ATTEMPTS):
            found = self._versions.newest(known)
            if found is None:
                raise TableNotFoundError(
                    f"there is no Iceberg table at {self._location} (no version file in "
                    f"{self._versions.directory}); check the location, or create the table first"
                )
            number, path = found
            seen = self._current
            fingerprint = self._versions.fingerprint(path)
            if seen is not None and seen.path == path and seen.fingerprint == fingerprint:
                self._newest_at = clock.monotonic()
                return seen.metadata
            try:
                version = _Version(number, path, fingerprint, read_metadata(self._io, path))
            except MissingFileError:
                known = None
                continue
            self._adopt(version)
            return version.metadata
        raise StorageError(
            f"{self._location}: metadata files are deleted faster than they can be read; try again"
        )

    def _adopt(self, version: _Version) -> None:
        seen = self._current
        if (
            seen is not None
            and seen.metadata.table_uuid
            and version.metadata.table_uuid != seen.metadata.table_uuid
        ):
            raise DataInvalidError(
                f"{self._location} holds another table now (uuid {version.metadata.table_uuid}, was "
                f"{seen.metadata.table_uuid}): it was dropped and created again; load it again"
            )
        self._use(version)

    def _use(self, version: _Version) -> None:
        """Make the version the current one; its properties say how files are written."""
        self._current = version
        self._newest_at = clock.monotonic()
        self._write_as(version.metadata)

    def _write_as(self, metadata: TableMetadata) -> None:
        self._io = self._io.with_fsync(wants_fsync(metadata.properties))
        self._versions = MetadataVersions(self._io, self._location)

    def create(self, metadata: TableMetadata) -> TableMetadata:
        """Write version 1. Raises TableAlreadyExistsError when the directory holds a table."""
        require_conditional_put(self._io, self._location)
        already = f"there is a table at {self._location} already; load it, or choose another location"
        if self.exists():
            raise TableAlreadyExistsError(already)
        self._refuse_relocation(metadata)
        self._write_as(metadata)
        path = self._versions.path(1, gzip=MetadataOptions.parse(metadata.properties).gzip)
        try:
            self._current = self._created(1, path, metadata)
        except FileExistsError:
            raise TableAlreadyExistsError(already) from None
        self._versions.write_hint(1)
        return metadata

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        """Create the version after `base`'s. See TableOperations.commit."""
        seen = self._current
        if seen is None or base is not seen.metadata:
            raise CommitConflictError(
                f"{self._name}: the change was made on an older version; refresh and apply it again"
            )
        if new is base:
            return base
        self._refuse_relocation(new)
        require_conditional_put(self._io, self._location)
        options = MetadataOptions.parse(new.properties)
        # The name follows the base: racing writers must collide, even if one of them changes the codec.
        path = self._versions.path(seen.number + 1, gzip=MetadataOptions.parse(base.properties).gzip)
        new, dropped = logged(base, seen.path, new, options)
        taken = f"{self._name}: another writer committed version {seen.number + 1} first"
        if not self._is_remote and self._versions.existing_path(seen.number + 1) is not None:
            raise CommitConflictError(taken)
        self._newest_at = None
        try:
            version = self._created(seen.number + 1, path, new)
        except FileExistsError:
            raise CommitConflictError(taken) from None
        except StorageError as error:
            # A put that was not answered may arrive at any time, and then it is the commit.
            is_open = self._is_remote and not was_refused(error)
            if is_open or _is_there(self._io, path):
                raise CommitStateUnknownError(
                    f"{self._name}: version {seen.number + 1} may have been written: {error}"
                ) from error
            raise
        try:
            self._require_successor(seen, version)
        except (StorageError, DataInvalidError, OSError) as error:
            raise CommitStateUnknownError(
                f"{self._name}: version {version.number} was written, but the versions beside it cannot be "
                f"read: {error}"
            ) from error
        self._use(version)
        failpoint("after-create")
        self._versions.write_hint(version.number)
        delete_superseded(self._io, dropped, options)
        return new

    def remove(self) -> None:
        """Delete all versions, the newest one last: until then the table is there as it was."""
        self._versions.remove_all()
        self._current = self._newest_at = None

    def commit_turn(self) -> AbstractContextManager[None]:
        """A lock on the metadata directory if the file system is local."""
        if scheme_of(self._location) in ("", "file"):
            return commit_turn(local_path(self._versions.directory))
        return self._building() if self._is_remote else nullcontext()

    @contextmanager
    def _building(self) -> Iterator[None]:
        """What is read in here is only built upon."""
        self._in_turn = True
        try:
            yield
        finally:
            self._in_turn = False

    def _created(self, number: int, path: str, metadata: TableMetadata) -> _Version:
        data = metadata_bytes(metadata, gzip=path.endswith(".gz.metadata.json"))
        made: Fingerprint | None = None
        try:
            made = self._io.create_exclusive(path, data)
        except FileExistsError:
            # A put whose answer was lost is sent again by the store's client, and then finds itself.
            if not self._is_remote or self._io.read_bytes(path) != data:
                raise
        return _Version(number, path, made or self._versions.fingerprint(path), metadata)

    def _require_successor(self, seen: _Version, created: _Version) -> None:
        """Check that the created version follows the version that the writer saw.

        Old versions may be deleted, and then a writer that was suspended can create a number that was used
        before. Or the table was dropped, and a version alone would bring it back, or hide the table that
        replaced it. The version that the writer built on is gone too in these cases; only then look for the
        current version.
        """
        if self._versions.fingerprint(seen.path) == seen.fingerprint:
            return
        listed = MetadataVersions(self._io, self._location).newest()
        if listed is None or listed[0] <= created.number:
            self._require_base(seen, created)
            return
        newest = read_metadata(self._io, listed[1])
        ours = {snapshot.snapshot_id for snapshot in created.metadata.snapshots[-1:]}
        if created.path in {entry.metadata_file for entry in newest.metadata_log} or (
            created.metadata.snapshots is not seen.metadata.snapshots
            and ours <= newest.snapshots_by_id.keys()
        ):
            return
        self._current = None
        raise CommitStateUnknownError(
            f"{self._name}: version {created.number} was written, but the table is at version {listed[0]} "
            "now and does not contain it"
        )

    def _require_base(self, seen: _Version, created: _Version) -> None:
        """Undo the commit if the base is gone: without a later version, the table must have been dropped."""
        try:
            if read_metadata(self._io, seen.path).table_uuid == seen.metadata.table_uuid:
                return
        except MissingFileError:
            pass
        self._io.delete(created.path)
        raise TableNotFoundError(
            f"{self._name} was dropped while a change to it was being committed; nothing was committed. If a "
            "table was created there since, load it again"
        )

    def _refuse_relocation(self, metadata: TableMetadata) -> None:
        if "write.metadata.path" in metadata.properties:
            raise InvalidOptionError(
                f"{self._name}: write.metadata.path cannot be set on a file system table, whose catalog is "
                "its metadata directory; unset it, or use a catalog service"
            )


def _is_there(io: FileIO, path: str) -> bool:
    try:
        return io.exists(path)
    except StorageError:
        return True
