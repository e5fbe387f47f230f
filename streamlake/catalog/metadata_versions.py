"""Finds the current metadata version of a file system table, without reading more than needed.

`version-hint.text` says where to start, the files themselves decide: the newest version is the last one of an
unbroken row from there. Names: `v{N}.metadata.json`, compressed `v{N}.gz.metadata.json` or, as old writers
named it, `v{N}.metadata.json.gz` (spec: File System Tables; Appendix F, Naming for GZIP compressed Metadata
JSON files).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from streamlake.errors import MissingFileError, StorageError
from streamlake.storage.arrow_fs import ArrowFileIO
from streamlake.storage.file_io import FileIO, Fingerprint, scheme_of, storage_error
from streamlake.storage.local import local_path
from streamlake.storage.locations import TableLocations, metadata_version_of
from streamlake.storage.object_store import ObjectFileIO
from streamlake.storage.webhdfs import WebHdfsFileIO

_STAMPED = (ObjectFileIO, WebHdfsFileIO, ArrowFileIO)
"""Storage in which two files of one name and size can be distinguished."""


class MetadataVersions:
    """The metadata version files below one table location."""

    def __init__(self, io: FileIO, location: str) -> None:
        self._io = io
        self._locations = TableLocations(location)

    @property
    def directory(self) -> str:
        """The directory of the version files."""
        return self._locations.root_metadata_directory

    def path(self, version: int, *, gzip: bool) -> str:
        """The path that a new version gets."""
        return self._locations.metadata_version(version, gzip=gzip)

    def existing_path(self, version: int) -> str | None:
        """The file of a version under any of its names, or None."""
        plain = self.path(version, gzip=False)
        candidates = (plain, self.path(version, gzip=True), f"{plain}.gz")
        return next((path for path in candidates if self._io.exists(path)), None)

    def hint(self) -> int | None:
        """The content of version-hint.text; None when it is missing or unreadable."""
        try:
            return int(self._io.read_bytes(self._locations.version_hint()).strip())
        except (StorageError, ValueError):
            return None

    def write_hint(self, version: int) -> None:
        """Write the hint if possible; an error is ignored, because readers do not depend on the hint."""
        try:
            self._io.write_bytes(self._locations.version_hint(), str(version).encode())
        except StorageError:
            return

    def follows(self, known: int, *, gzip: bool) -> bool:
        """Whether there is a version after a known one, under the name that its writers give it: `gzip` says
        whether the known one asks for compression.
        """
        return self._io.exists(self.path(known + 1, gzip=gzip))

    def newest(self, known: int | None = None) -> tuple[int, str] | None:
        """The newest version and its file; None when there is no table. `known` is a version that exists."""
        start = known if known is not None else self.hint()
        path = None if start is None else self.existing_path(start)
        if start is None or path is None:
            found = self._listed()
            if found is None:
                return None
            start, path = found
        following = self.existing_path(start + 1)
        while following is not None:
            start, path = start + 1, following
            following = self.existing_path(start + 1)
        return start, path

    def fingerprint(self, path: str) -> Fingerprint | None:
        """What distinguishes a version file from another one of the same name, without reading it.

        None when the file is gone. A table that was dropped and created again may well have a file of the
        same name and size.
        """
        if scheme_of(path) in ("", "file"):
            try:
                status = os.stat(local_path(path))
            except FileNotFoundError:
                return None
            except OSError as error:
                raise storage_error("looking at", path, error) from error
            return status.st_size, status.st_mtime_ns, status.st_ino
        try:
            return self._io.fingerprint(path) if isinstance(self._io, _STAMPED) else (self._io.size(path),)
        except MissingFileError:
            return None

    def remove_all(self) -> None:
        """Delete every version in ascending order, and the hint before the newest one."""
        paths = [path for _, path in sorted(self._all())]
        for path in paths[:-1]:
            self._io.delete(path)
        self._io.delete(self._locations.version_hint())
        for path in paths[-1:]:
            self._io.delete(path)

    def _listed(self) -> tuple[int, str] | None:
        return max(self._all(), default=None)

    def _all(self) -> Iterator[tuple[int, str]]:
        for info in self._io.list_prefix(self.directory):
            version = metadata_version_of(info.path)
            # Deeper ones are those of another table, which lies below this directory.
            if version is not None and info.path.rpartition("/")[0] == self.directory:
                yield version, info.path
