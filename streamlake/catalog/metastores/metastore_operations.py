"""Commits to tables of a metastore: write the new metadata file, then swap the pointer.

Implements `TableOperations` once for all metastores. The file has a name that nobody else uses, so writing it
harms nobody; the swap alone decides. Invariant: a metadata file is deleted only when its swap certainly did
not happen and cannot happen any more.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext, suppress
from enum import Enum

from streamlake import ids
from streamlake.catalog.metadata_log import delete_superseded, logged
from streamlake.catalog.metastores.pointers import Change, Metastore, Pointer
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    InvalidOptionError,
    MissingFileError,
    StorageError,
    StreamlakeError,
    TableAlreadyExistsError,
)
from streamlake.formats.manifests.metadata_json import metadata_bytes, read_metadata
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.durability import wants_fsync
from streamlake.storage.file_io import FileIO, file_io_for
from streamlake.storage.locations import TableLocations
from streamlake.table.options import MetadataOptions

_NUMBERED = re.compile(r"(\d+)-")


class _Outcome(Enum):
    DONE = "the table has the change"
    LOST = "another change took its place, so it can never be done"
    OPEN = "neither is known"


class MetastoreTableOperations:
    """One table of a metastore. See TableOperations."""

    def __init__(self, metastore: Metastore, name: str) -> None:
        self._metastore = metastore
        self._name = name
        self._io: FileIO | None = None
        self._pointer = Pointer("")
        self._metadata: TableMetadata | None = None

    @property
    def name(self) -> str:
        """The name of the table in the catalog."""
        return self._name

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.current().location

    @property
    def io(self) -> FileIO:
        """The storage of the table's metadata and data files."""
        self.current()
        assert self._io is not None
        return self._io

    @property
    def metadata_path(self) -> str:
        """The metadata file of the version that `current` returns."""
        self.current()
        return self._pointer.metadata_location

    def current(self) -> TableMetadata:
        """The metadata as last seen."""
        return self.refresh() if self._metadata is None else self._metadata

    def refresh(self) -> TableMetadata:
        """Ask the metastore for the current file; it is read only when it is another one.

        Raises TableNotFoundError, and DataInvalidError when the file is gone or another table has the name.
        """
        pointer = self._metastore.pointer(self._name)
        seen = self._metadata
        if seen is not None and pointer.metadata_location == self._pointer.metadata_location:
            self._pointer = pointer
            return seen
        try:
            io, metadata = self._read(pointer)
        except MissingFileError as error:
            # A file may be superseded and deleted while it is being looked for.
            now = self._metastore.pointer(self._name)
            if now.metadata_location == pointer.metadata_location:
                raise DataInvalidError(
                    f"{self._name}: catalog {self._metastore.name} says that its metadata is "
                    f"{pointer.metadata_location}, and there is no such file: restore it, or register an "
                    "earlier metadata file of the table"
                ) from error
            pointer = now
            io, metadata = self._read(pointer)
        if seen is not None and seen.table_uuid not in ("", metadata.table_uuid):
            raise DataInvalidError(
                f"{self._name} is another table now (uuid {metadata.table_uuid}, was {seen.table_uuid}): it "
                "was dropped and created again; load it again"
            )
        return self._use(pointer, metadata, io)

    def _read(self, pointer: Pointer) -> tuple[FileIO, TableMetadata]:
        io = file_io_for(pointer.metadata_location, self._metastore.storage)
        return io, read_metadata(io, pointer.metadata_location)

    def _use(self, pointer: Pointer, metadata: TableMetadata, io: FileIO) -> TableMetadata:
        self._pointer, self._metadata = pointer, metadata
        self._io = io.with_fsync(wants_fsync(metadata.properties))
        return metadata

    def create(self, metadata: TableMetadata) -> TableMetadata:
        """Write the first metadata file and make the table's entry. Raises TableAlreadyExistsError."""
        io = file_io_for(metadata.location, self._metastore.storage)
        io = io.with_fsync(wants_fsync(metadata.properties))
        path = _write(io, metadata, 0)
        try:
            self._metastore.insert(self._name, Change(path, metadata))
        except Exception as error:
            failure = self._creation_failure(io, path, error)
            if failure is error:
                raise
            if failure is not None:
                raise failure from error
        return self._use(Pointer(path), metadata, io)

    def register(self, path: str) -> TableMetadata:
        """Make the table's entry for an existing metadata file, which stays as it is.

        Raises TableAlreadyExistsError, InvalidOptionError for a file that is not there.
        """
        action = f"registering {self._name} in catalog {self._metastore.name}"
        try:
            io, metadata = self._read(Pointer(path))
        except MissingFileError as error:
            raise InvalidOptionError(
                f"{action}: there is no metadata file {path}; look into the table's metadata directory"
            ) from error
        self._metastore.admit(self._name)
        try:
            self._metastore.insert(self._name, Change(path, metadata))
        except StreamlakeError:
            raise
        except Exception as error:
            found = None
            with suppress(StreamlakeError):
                found = self._metastore.pointer(self._name).metadata_location
            if found != path:
                raise CommitStateUnknownError(
                    f"{action}: the catalog did not say whether it is done ({_shown(error)}); look for the "
                    "table before registering it again"
                ) from error
        return self._use(Pointer(path), metadata, io)

    def _creation_failure(self, io: FileIO, path: str, error: Exception) -> Exception | None:
        """What to raise after `insert` has raised `error`; None if the table's entry names our file."""
        if _is_certain(error):
            _discard(io, path)
            return error
        found = None
        with suppress(StreamlakeError):
            found = self._metastore.pointer(self._name).metadata_location
        if found == path:
            return None
        if found is not None:
            _discard(io, path)
            return TableAlreadyExistsError(
                f"creating {self._name} in catalog {self._metastore.name}: another writer created it first; "
                "load it, or choose another name"
            )
        return CommitStateUnknownError(
            f"creating {self._name}: catalog {self._metastore.name} did not say whether it is done "
            f"({_shown(error)}); look for the table before creating it again"
        )

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        """Write `new` and swap the pointer from `base` to it. See TableOperations.commit."""
        if base is not self._metadata:
            raise CommitConflictError(
                f"{self._name}: the change was made on an older version; refresh and apply it again"
            )
        if new is base:
            return base
        io, before = self.io, self._pointer
        options = MetadataOptions.parse(new.properties)
        new, dropped = logged(base, before.metadata_location, new, options)
        path = _write(io, new, _number(before.metadata_location) + 1)
        change = Change(path, new, base, before)
        try:
            self._metastore.swap(self._name, change)
        except Exception as error:
            failure = self._failure(change, error)
            if failure is error:
                raise
            if failure is not None:
                raise failure from error
        else:
            self._use(Pointer(path), new, io)
        delete_superseded(io, dropped, options)
        return self.current()

    def _failure(self, change: Change, error: Exception) -> Exception | None:
        """What to raise after `swap` has raised `error`; None if the table has the change after all."""
        refused = isinstance(error, CommitConflictError)
        if _is_certain(error) and not (refused and self._metastore.repeats_requests):
            _discard(self.io, change.metadata_location)
            return error
        outcome = self._outcome(change)
        if outcome is _Outcome.DONE:
            return None
        if outcome is _Outcome.LOST:
            _discard(self.io, change.metadata_location)
        message = f"{self._name}: catalog {self._metastore.name}: {_shown(error)}"
        if refused:
            return error
        if outcome is _Outcome.LOST:
            return CommitConflictError(f"{message}; another writer committed first")
        return CommitStateUnknownError(message)

    def _outcome(self, change: Change) -> _Outcome:
        """Look at the table once. Waiting is the business of who called (`commit.status-check.*`)."""
        assert change.base is not None
        assert change.pointer is not None
        try:
            metadata = self.refresh()
        except (StreamlakeError, OSError):
            return _Outcome.OPEN
        earlier = {entry.metadata_file for entry in metadata.metadata_log}
        here = self._pointer.metadata_location
        if change.metadata_location in (here, *earlier):
            return _Outcome.DONE
        base_is_known = change.pointer.metadata_location in (here, *earlier)
        if (
            base_is_known
            and self._metastore.is_conditional(change.base)
            and not change.pointer.is_same(self._pointer)
        ):
            return _Outcome.LOST
        return _Outcome.OPEN

    def commit_turn(self) -> AbstractContextManager[None]:
        """No lock: the metastore alone decides between commits."""
        return nullcontext()


def _number(path: str) -> int:
    """The number in the name of a metadata file; -1 for a file that a metastore did not name."""
    match = _NUMBERED.match(path.rpartition("/")[2])
    return int(match.group(1)) if match else -1


def _write(io: FileIO, metadata: TableMetadata, number: int) -> str:
    """Write a metadata file under a new name. Raises StorageError: then it is not there, or is an orphan."""
    gzip = MetadataOptions.parse(metadata.properties).gzip
    locations = TableLocations(metadata.location, metadata.properties)
    path = locations.metadata_file(number, ids.new_uuid(), gzip=gzip)
    try:
        io.write_bytes(path, metadata_bytes(metadata, gzip=gzip))
    except StorageError:
        _discard(io, path)
        raise
    return path


def _discard(io: FileIO, path: str) -> None:
    with suppress(StorageError):
        io.delete(path)


def _is_certain(error: Exception) -> bool:
    """Whether a metastore's error means that nothing was done."""
    return isinstance(error, StreamlakeError) and not isinstance(error, CommitStateUnknownError)


def _shown(error: Exception) -> str:
    return str(error) if isinstance(error, StreamlakeError) else f"{error} ({type(error).__name__})"
