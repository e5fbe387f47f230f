"""The FileIO protocol, the interface to all storage, and the choice of its implementation for a location.

Every other package reads and writes through a FileIO that travels to executors inside a `WriteTarget`, so
implementations can be pickled. Paths are the strings in table metadata, with or without a scheme.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Protocol, runtime_checkable

from streamlake.errors import FeatureUnsupportedError
from streamlake.storage.arrow_fs import ARROW_SCHEMES, hdfs_io
from streamlake.storage.file_info import FileInfo, Fingerprint, storage_error, storage_errors
from streamlake.storage.local import LocalFileIO
from streamlake.storage.object_settings import OBJECT_SCHEMES
from streamlake.storage.object_store import ObjectFileIO

__all__ = ["FileIO", "FileInfo", "Fingerprint", "file_io_for", "scheme_of", "storage_error", "storage_errors"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")


@runtime_checkable
class FileIO(Protocol):
    """Whole-file access to one storage system.

    Called many times per checkpoint, from the driver and from executors, possibly by several threads.
    Failures raise StorageError (MissingFileError when the file does not exist). Streams that were handed out
    raise plain OSError, to be wrapped in `storage_errors`. What a call has written, and the file of a stream
    that was closed, survives a loss of power, with the directories that were made for it. Not guaranteed:
    that what was deleted stays deleted.
    """

    def with_fsync(self, on: bool) -> FileIO:
        """The same storage; if `on` is False it does not wait for the device.

        Object stores make no difference.
        """
        ...

    def read_bytes(self, path: str) -> bytes:
        """The whole content of `path`."""
        ...

    def open_input(self, path: str) -> BinaryIO:
        """A seekable binary stream on `path` that pyarrow accepts as a file; the caller closes it."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """A binary stream that (over)writes `path`; missing parent directories are made.

        The caller closes it. The file may be visible before it is complete: only for names that nobody knows
        yet.
        """
        ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace `path` by `data`; a reader sees the old content or the new one, nothing in between."""
        ...

    def create_exclusive(self, path: str, data: bytes) -> Fingerprint | None:
        """Create `path` with `data` atomically: of several racing callers exactly one succeeds.

        Returns the file's fingerprint where the storage says it in its answer.
        Raises FileExistsError when the path already exists, FeatureUnsupportedError when the storage has no
        such operation.
        """
        ...

    def sync(self, path: str) -> None:
        """Make a file durable that another program has written.

        Raises MissingFileError when it does not exist.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file at `path`."""
        ...

    def delete(self, path: str) -> None:
        """Remove the file at `path`; a missing file is no error."""
        ...

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        """Every file below the directory `path`, at any depth, in no order.

        Empty when the directory does not exist.
        """
        ...

    def list_level(self, path: str) -> tuple[list[FileInfo], list[str]]:
        """The files directly in the directory `path`, and the paths of its directories; both in no order.

        Empty when the directory does not exist.
        """
        ...

    def size(self, path: str) -> int:
        """Size of the file at `path` in bytes."""
        ...


def scheme_of(location: str) -> str:
    """The URI scheme of `location` in lower case, "" for a plain path."""
    match = _SCHEME.match(location)
    return match.group(1).lower() if match else ""


def file_io_for(location: str, properties: Mapping[str, str] | None = None) -> FileIO:
    """The FileIO for a table at `location`, configured by Iceberg's property names (`s3.endpoint`, ...).

    Raises FeatureUnsupportedError for an unknown scheme.
    """
    scheme = scheme_of(location)
    if scheme in ("", "file"):
        return LocalFileIO()
    if scheme in OBJECT_SCHEMES:
        return ObjectFileIO(scheme, dict(properties or {}))
    if scheme in ARROW_SCHEMES:
        return hdfs_io(scheme, dict(properties or {}))
    known = ", ".join(
        ("a plain path", "file:", *(f"{name}://" for name in (*OBJECT_SCHEMES, *ARROW_SCHEMES)))
    )
    raise FeatureUnsupportedError(f"{location}: no storage for the scheme {scheme!r}; known are {known}")
