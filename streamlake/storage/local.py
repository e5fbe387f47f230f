"""Files on a local or mounted file system, where hard links make commits atomic.

Java's Hadoop LocalFileSystem keeps a checksum of `name` in `.name.crc` beside it and refuses to read a file
that does not match. Invariant: whenever a file is overwritten or deleted here, its stale checksum file is
removed first.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError, StorageError
from streamlake.failpoints import failpoint
from streamlake.ids import new_uuid
from streamlake.storage.direct_writes import write_direct
from streamlake.storage.durability import SyncedFile, sync_descriptor, sync_file, sync_names
from streamlake.storage.file_info import FileInfo, storage_error, storage_errors

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def local_path(path: str) -> str:
    """The operating system's path of `/p`, `file:/p` or `file:///p`.

    As in Hadoop, it is not percent-decoded.
    """
    if path.startswith("/"):
        return path
    if path[:5].lower() == "file:":
        rest = path[5:]
        if rest.startswith("///"):
            return rest[2:]
        if rest.startswith("/") and not rest.startswith("//"):
            return rest
        if rest.startswith("//localhost/"):
            return rest[len("//localhost") :]
    raise StorageError(
        f"{path}: not an absolute local path; give /path, file:/path or file:///path, because a relative one "
        "would mean another place in each process"
    )


@dataclass(frozen=True)
class LocalFileIO:
    """FileIO over the operating system's files; paths are `/p`, `file:/p` or `file:///p`.

    With `fsync`, whatever a call has written survives a loss of power as soon as the call returns, a stream's
    file as soon as it is closed. What was deleted may come back.
    """

    fsync: bool = field(default=True, kw_only=True)

    def with_fsync(self, on: bool) -> LocalFileIO:
        """The same storage, with or without syncing."""
        return self if self.fsync == on else replace(self, fsync=on)

    def read_bytes(self, path: str) -> bytes:
        """The whole content of `path`."""
        with storage_errors("reading", path), open(local_path(path), "rb", buffering=0) as file:
            return file.read()

    def open_input(self, path: str) -> BinaryIO:
        """A seekable pyarrow stream on `path`."""
        with storage_errors("opening", path):
            return cast(BinaryIO, pa.OSFile(local_path(path), "rb"))

    def open_output(self, path: str) -> BinaryIO:
        """A pyarrow stream that (over)writes `path`; missing parent directories are made."""
        target = local_path(path)
        with storage_errors("creating", path):
            _remove_checksum(target)
            opened = SyncedFile if self.fsync else pa.OSFile
            try:
                return cast(BinaryIO, opened(target, "wb"))
            except FileNotFoundError:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                return cast(BinaryIO, opened(target, "wb"))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace `path` by `data` through a temporary file and a rename."""
        target = local_path(path)
        with storage_errors("writing", path):
            temporary = _write_temporary(target, data, fsync=self.fsync)
            try:
                _remove_checksum(target)
                os.replace(temporary, target)
            except OSError:
                _remove(temporary)
                raise
            self._sync_name_of(target)

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Create `path` with `data` atomically. Raises FileExistsError when it already exists."""
        target = local_path(path)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "the file is already there", path)
        temporary = None
        try:
            temporary = _write_temporary(target, data, fsync=self.fsync, direct=True)
            failpoint("metadata-written")
            _remove_checksum(target)
            _link(temporary, target)
            self._sync_name_of(target)
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "the file is already there", path) from None
        except OSError as cause:
            raise storage_error("creating", path, cause) from cause
        finally:
            if temporary is not None:
                _remove(temporary)

    def sync(self, path: str) -> None:
        """Make a file durable that another program has written."""
        if self.fsync:
            target = local_path(path)
            with storage_errors("syncing", path):
                sync_file(target)
                sync_names(os.path.dirname(target))

    def exists(self, path: str) -> bool:
        """Whether there is a file at `path`."""
        return os.path.exists(local_path(path))

    def delete(self, path: str) -> None:
        """Remove the file and its checksum file; missing files are no error."""
        target = local_path(path)
        with storage_errors("deleting", path):
            _remove_checksum(target)
            _remove(target)

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        """Every file below the directory `path`, in the path style of `path`; checksum files are left out."""
        prefix = path.rstrip("/")
        return _walk(prefix, local_path(prefix or "/"))

    def list_level(self, path: str) -> tuple[list[FileInfo], list[str]]:
        """The files directly in the directory `path`, without checksum files, and its directories."""
        prefix = path.rstrip("/")
        return _level(prefix, local_path(prefix or "/"))

    def size(self, path: str) -> int:
        """Size of the file at `path` in bytes."""
        with storage_errors("reading the size of", path):
            return os.stat(local_path(path)).st_size

    def _sync_name_of(self, target: str) -> None:
        if self.fsync:
            sync_names(os.path.dirname(target))


def _walk(shown: str, directory: str) -> Iterator[FileInfo]:
    files, directories = _level(shown, directory)
    yield from files
    for path in directories:
        yield from _walk(path, f"{directory}/{path.rpartition('/')[2]}")


def _level(shown: str, directory: str) -> tuple[list[FileInfo], list[str]]:
    with storage_errors("listing", shown):
        try:
            entries = list(os.scandir(directory))
        except FileNotFoundError:
            return [], []
    files, directories = [], []
    for entry in entries:
        path = f"{shown}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            directories.append(path)
        elif entry.is_symlink() and entry.is_dir():
            continue  # not followed, and no file
        elif not (entry.name.startswith(".") and entry.name.endswith(".crc")):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            files.append(FileInfo(path, status.st_size, status.st_mtime_ns // 1_000_000))
    return files, directories


def _remove_checksum(target: str) -> None:
    directory, name = os.path.split(target)
    try:
        _remove(f"{directory}/.{name}.crc")
    except OSError as cause:
        if cause.errno != errno.ENAMETOOLONG:
            raise


def _remove(target: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(target)


def _write_temporary(target: str, data: bytes, *, fsync: bool, direct: bool = False) -> str:
    """Write `data` to a new hidden file beside `target` and return its path; removes it after a failure.

    `direct`: past the page cache, where the file is large and the file system allows it. `fsync`: its bytes
    are durable.
    """
    directory, name = os.path.split(target)
    temporary = f"{directory}/.{name[:48]}.{new_uuid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
        descriptor = os.open(temporary, flags, 0o666)
    try:
        try:
            if not (direct and write_direct(temporary, data)):
                os.ftruncate(descriptor, 0)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            if fsync:
                sync_descriptor(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        _remove(temporary)
        raise
    return temporary


def _link(temporary: str, target: str) -> None:
    try:
        os.link(temporary, target)
    except FileExistsError:
        # A network file system may repeat a request that has already succeeded: then this call made the link.
        if not os.path.samefile(temporary, target):
            raise
    except OSError as cause:
        if cause.errno in _NO_HARD_LINKS:
            raise FeatureUnsupportedError(
                f"creating {target}: this file system has no hard links, which make the commit atomic; "
                "put the table on another file system or use a catalog service"
            ) from cause
        raise
