"""HDFS over HTTP (WebHDFS, HttpFS), without any library of Hadoop.

Holds data, manifests and metadata. Creating a file exclusively writes it beside its place and renames it, as
Iceberg's Hadoop tables do: a rename never replaces a file, and what it shows is complete. Created in its
place, a file would show before its content, and a writer that dies would leave half a version. Invariant:
only properties are pickled.
"""

from __future__ import annotations

import difflib
import errno
import getpass
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from streamlake.errors import InvalidOptionError, StorageError
from streamlake.ids import new_uuid
from streamlake.storage.file_info import FileInfo, Fingerprint, storage_error
from streamlake.storage.ranged_input import TAIL, RangedInput
from streamlake.storage.webhdfs_client import FileStatus, WebHdfsClient, chunk, ended

HTTP_ADDRESS = "hdfs.http-address"
HDFS_PROPERTIES = ("hdfs.host", "hdfs.port", "hdfs.user", "hdfs.kerberos_ticket", HTTP_ADDRESS)
_HTTP_PORT = 9870
_NOT_RENAMED = "the name node did not rename the file that was written beside it"
_PART = 8 * 1024 * 1024
"""What is not larger is written in one request, and again when that fails."""


@dataclass(frozen=True)
class WebHdfsFileIO:
    """FileIO over WebHDFS. `properties`: `hdfs.http-address`, `hdfs.host`, `hdfs.user`."""

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.properties.items())))

    def with_fsync(self, on: bool) -> WebHdfsFileIO:
        """Itself: what the service has acknowledged is durable."""
        del on
        return self

    def read_bytes(self, path: str) -> bytes:
        """The whole content of `path`."""
        client, key = self._at(path)
        with _errors("reading", path):
            return client.read(key, 0, client.status(key).size)

    def open_input(self, path: str) -> BinaryIO:
        """A seekable stream on `path`; what it reads raises OSError."""
        client, key = self._at(path)
        with _errors("opening", path):
            return cast(BinaryIO, HdfsInput(client, key, path))

    def open_output(self, path: str) -> BinaryIO:
        """A stream that (over)writes `path`."""
        client, key = self._at(path)
        return cast(BinaryIO, HdfsOutput(client, key, path))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace `path` by `data` by a rename; with HttpFS the file is missing for a moment."""
        client, key = self._at(path)
        with _errors("writing", path), self._written_beside(client, key, data) as temporary:
            if not self._renamed(client, temporary, key, data, overwrite=True):
                client.delete(key)
                if not self._renamed(client, temporary, key, data):
                    raise OSError(errno.EIO, _NOT_RENAMED)

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Create `path` with `data` by a rename. Raises FileExistsError when it exists."""
        client, key = self._at(path)
        with _errors("creating", path), self._written_beside(client, key, data) as temporary:
            if self._renamed(client, temporary, key, data):
                return
            if self._exists(client, key):
                raise FileExistsError(errno.EEXIST, "the file is already there", path)
            raise OSError(errno.EIO, _NOT_RENAMED)

    def sync(self, path: str) -> None:
        """Does nothing: what the service has acknowledged is durable."""

    def exists(self, path: str) -> bool:
        """Whether there is a file at `path`."""
        client, key = self._at(path)
        with _errors("looking for", path):
            return self._exists(client, key)

    def delete(self, path: str) -> None:
        """Remove the file at `path`; a missing file is no error."""
        client, key = self._at(path)
        with _errors("deleting", path):
            client.delete(key)

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        """Every file below `path`, at any depth."""
        files, directories = self.list_level(path)
        yield from files
        for directory in directories:
            yield from self.list_prefix(directory)

    def list_level(self, path: str) -> tuple[list[FileInfo], list[str]]:
        """The files directly in the directory `path`, and its directories."""
        client, key = self._at(path.rstrip("/"))
        head = path.rstrip("/")
        with _errors("listing", path):
            try:
                found = client.listed(key)
            except FileNotFoundError:
                return [], []
        files = [
            FileInfo(f"{head}/{each.name}", each.size, each.modified_ms) for each in found if each.is_file
        ]
        return files, [f"{head}/{each.name}" for each in found if not each.is_file]

    def size(self, path: str) -> int:
        """Size of `path` in bytes."""
        return self._status("reading the size of", path).size

    def fingerprint(self, path: str) -> Fingerprint:
        """Size and time of the last change: two files of one name may well have the same size."""
        status = self._status("looking at", path)
        return status.size, status.modified_ms

    def _status(self, action: str, path: str) -> FileStatus:
        client, key = self._at(path)
        with _errors(action, path):
            status = client.status(key)
            if not status.is_file:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return status

    @contextmanager
    def _written_beside(self, client: WebHdfsClient, key: str, data: bytes) -> Iterator[str]:
        """A new file beside `key`; when the block fails it is removed, so that no late rename finds it."""
        directory, _, name = key.rpartition("/")
        temporary = f"{directory}/.{name[:48]}.{new_uuid()}.tmp"
        try:
            client.write(temporary, data)
            yield temporary
        except BaseException:
            with suppress(OSError):
                client.delete(temporary)
            raise

    def _renamed(
        self, client: WebHdfsClient, temporary: str, key: str, data: bytes, *, overwrite: bool = False
    ) -> bool:
        """Whether the file is at its place. A request that was sent again after a lost answer is refused
        because the first one was done: then the file is no longer where it was written.
        """
        try:
            if client.rename(temporary, key, overwrite=overwrite):
                return True
        except FileNotFoundError:
            pass
        if self._exists(client, temporary):
            return False
        return client.status(key).size == len(data) and client.read(key, 0, len(data)) == data

    def _exists(self, client: WebHdfsClient, key: str) -> bool:
        try:
            return client.status(key).is_file
        except FileNotFoundError:
            return False

    def _at(self, path: str) -> tuple[WebHdfsClient, str]:
        """The client of the HDFS that `path` names, and the path there."""
        authority, _, key = path.partition("://")[2].partition("/")
        return WebHdfsClient(_addresses(authority, self.properties), _user(self.properties)), f"/{key}"


def check_hdfs_known(properties: Mapping[str, str]) -> None:
    """Raises InvalidOptionError for a property `hdfs.*` that is not known."""
    for key in properties:
        if key.startswith("hdfs.") and key not in HDFS_PROPERTIES:
            close = difflib.get_close_matches(key, HDFS_PROPERTIES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(HDFS_PROPERTIES)}"
            raise InvalidOptionError(f"unknown storage property {key}; {hint}")


def _addresses(authority: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    given = [part.strip().rstrip("/") for part in properties.get(HTTP_ADDRESS, "").split(",") if part.strip()]
    if given:
        return tuple(part if "://" in part else f"http://{part}" for part in given)
    host = authority.rpartition("@")[2].partition(":")[0] or properties.get("hdfs.host", "")
    if not host:
        raise InvalidOptionError(
            f"hdfs:// without a host: write hdfs://namenode:8020/..., or give {HTTP_ADDRESS}, the HTTP "
            "address of the name node (http://namenode:9870) or of an HttpFS server"
        )
    return (f"http://{host}:{_HTTP_PORT}",)


def _user(properties: Mapping[str, str]) -> str:
    try:
        return properties.get("hdfs.user") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):
        raise InvalidOptionError("this system has no name for its user: give hdfs.user") from None


@contextmanager
def _errors(action: str, path: str) -> Iterator[None]:
    """Context manager: OSErrors become StorageErrors that say what to do."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as cause:
        if cause.errno == errno.EACCES:
            raise StorageError(
                f"{action} {path}: {cause.strerror}; give this user access to the path, or name another one "
                "(hdfs.user)"
            ) from cause
        if "does not answer" in str(cause.strerror):
            raise StorageError(
                f"{action} {path}: {cause.strerror}; check that HDFS runs, and {HTTP_ADDRESS}, the HTTP "
                "address of its name nodes or of an HttpFS server"
            ) from cause
        raise storage_error(action, path, cause) from cause


class HdfsInput(RangedInput):
    """A seekable stream on a file of HDFS. Raises OSError when reading fails."""

    def __init__(self, client: WebHdfsClient, key: str, name: str) -> None:
        self._client = client
        self._key = key
        size = client.status(key).size
        tail = min(size, TAIL)
        super().__init__(name, size - tail, client.read(key, size - tail, tail), size)

    def _range(self, start: int, end: int) -> bytes:
        return self._client.read(self._key, start, end - start)


class HdfsOutput(io.RawIOBase):
    """A stream that writes a file of HDFS. Raises OSError when that fails.

    A stream that is left by an exception in a `with` block may leave the beginning of the file.
    """

    def __init__(self, client: WebHdfsClient, key: str, name: str) -> None:
        super().__init__()
        self.name = name
        self._client = client
        self._key = key
        self._at = 0
        self._kept = bytearray()
        self._upload: Any = None

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The number of bytes written."""
        return self._at

    def write(self, data: Any) -> int:
        """Take the bytes; their number."""
        if self.closed:
            raise ValueError(f"{self.name} is closed")
        view = memoryview(data).cast("B")
        self._kept += view
        self._at += len(view)
        if len(self._kept) > _PART:
            if self._upload is None:
                self._upload = self._client.upload(self._key)
            chunk(self._upload, bytes(self._kept))
            self._kept.clear()
        return len(view)

    def close(self) -> None:
        """Write what is left; the file is complete now."""
        if self.closed:
            return
        super().close()
        if self._upload is None:
            self._client.write(self._key, bytes(self._kept))
            return
        if self._kept:
            chunk(self._upload, bytes(self._kept))
        ended(self._upload)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()

    def __del__(self) -> None:
        self._give_up()

    def _give_up(self) -> None:
        """End without completing the file."""
        if self.closed:
            return
        io.RawIOBase.close(self)
        if self._upload is not None:
            self._upload.close()
