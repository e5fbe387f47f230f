"""HDFS through pyarrow.fs, which needs libhdfs.

Holds data, manifests and metadata. pyarrow's rename replaces a file, so that it cannot decide between two
commits: on `hdfs://` they go over HTTP (see `webhdfs`), on `viewfs://` they need a catalog service.
Invariant: only properties are pickled; each process opens its own connections.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from ctypes.util import find_library
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, cast

from pyarrow import fs

from streamlake.errors import FeatureUnsupportedError
from streamlake.storage.file_info import FileInfo, Fingerprint, storage_errors
from streamlake.storage.webhdfs import HTTP_ADDRESS, WebHdfsFileIO, check_hdfs_known

ARROW_SCHEMES = ("hdfs", "viewfs")
WITHOUT_COMMITS = ("viewfs",)
"""Schemes on which a table by its path cannot be committed to."""


@dataclass(frozen=True)
class ArrowFileIO:
    """FileIO over a pyarrow FileSystem for one URI scheme.

    `properties` have the names that Iceberg and PyIceberg use.
    """

    scheme: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash((self.scheme, tuple(sorted(self.properties.items()))))

    def filesystem(self, path: str) -> Any:
        """The pyarrow FileSystem of this process for the host that `path` names."""
        return _filesystem(_authority(path), tuple(sorted(self.properties.items())))

    def with_fsync(self, on: bool) -> ArrowFileIO:
        """Itself: what the service has acknowledged is durable."""
        del on
        return self

    def read_bytes(self, path: str) -> bytes:
        """The whole content of `path`."""
        with (
            storage_errors("reading", path),
            self.filesystem(path).open_input_file(self._key(path)) as stream,
        ):
            return cast(bytes, stream.read())

    def open_input(self, path: str) -> BinaryIO:
        """A seekable pyarrow stream on `path`."""
        with storage_errors("opening", path):
            return cast(BinaryIO, self.filesystem(path).open_input_file(self._key(path)))

    def open_output(self, path: str) -> BinaryIO:
        """A pyarrow stream that (over)writes `path`."""
        key = self._key(path)
        with storage_errors("creating", path):
            self.filesystem(path).create_dir(key.rpartition("/")[0], recursive=True)
            return cast(BinaryIO, self.filesystem(path).open_output_stream(key))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace `path` by `data`; an object store shows the new object only when it is complete."""
        with storage_errors("writing", path), self.open_output(path) as stream:
            stream.write(data)

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Create `path` with `data` over HTTP. Raises FileExistsError; FeatureUnsupportedError on viewfs://."""
        if self.scheme in WITHOUT_COMMITS:
            raise FeatureUnsupportedError(
                f"creating {path}: {self.scheme}:// offers no atomic create here, so a path alone cannot be "
                "the table's catalog; give a catalog service (catalog=...), or the table's hdfs:// location"
            )
        WebHdfsFileIO(self.properties).create_exclusive(path, data)

    def sync(self, path: str) -> None:
        """Does nothing: what the service has acknowledged is durable."""

    def exists(self, path: str) -> bool:
        """Whether there is a file at `path`."""
        with storage_errors("looking for", path):
            return bool(self.filesystem(path).get_file_info(self._key(path)).type == fs.FileType.File)

    def delete(self, path: str) -> None:
        """Remove the file at `path`; a missing file is no error."""
        try:
            with storage_errors("deleting", path):
                self.filesystem(path).delete_file(self._key(path))
        except Exception:
            if self.exists(path):
                raise

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        """Every file below `path`, at any depth."""
        yield from self._listed(path, recursive=True)[0]

    def list_level(self, path: str) -> tuple[list[FileInfo], list[str]]:
        """The files directly in the directory `path`, and its directories."""
        return self._listed(path, recursive=False)

    def _listed(self, path: str, *, recursive: bool) -> tuple[list[FileInfo], list[str]]:
        key = self._key(path.rstrip("/"))
        head = path.rstrip("/")[: len(path.rstrip("/")) - len(key)]
        with storage_errors("listing", path):
            selector = fs.FileSelector(key, allow_not_found=True, recursive=recursive)
            found = self.filesystem(path).get_file_info(selector)
        files = [
            FileInfo(f"{head}/{info.path.lstrip('/')}", info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in found
            if info.type == fs.FileType.File
        ]
        inner = [info.path for info in found if info.type == fs.FileType.Directory]
        return files, [f"{head}/{own.lstrip('/')}" for own in inner]

    def size(self, path: str) -> int:
        """Size of `path` in bytes."""
        with storage_errors("reading the size of", path):
            info = self.filesystem(path).get_file_info(self._key(path))
            if info.type != fs.FileType.File:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return int(info.size)

    def fingerprint(self, path: str) -> Fingerprint:
        """Size and time of the last change: two files of one name may well have the same size."""
        with storage_errors("looking at", path):
            info = self.filesystem(path).get_file_info(self._key(path))
            if info.type != fs.FileType.File:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return int(info.size), int(info.mtime_ns)

    def _key(self, path: str) -> str:
        """The path in pyarrow's form, without host and port."""
        return "/" + path.partition("://")[2].partition("/")[2]


def hdfs_io(scheme: str, properties: Mapping[str, str]) -> ArrowFileIO | WebHdfsFileIO:
    """HDFS over HTTP where `hdfs.http-address` says so or there is no libhdfs, else through it.

    Raises InvalidOptionError for a property that is not known.
    """
    check_hdfs_known(properties)
    if scheme in WITHOUT_COMMITS or (HTTP_ADDRESS not in properties and has_libhdfs()):
        return ArrowFileIO(scheme, properties)
    return WebHdfsFileIO(properties)


@lru_cache(maxsize=1)
def has_libhdfs() -> bool:
    """Whether libhdfs is where pyarrow looks for it."""
    homes = (os.environ.get("ARROW_LIBHDFS_DIR"), f"{os.environ.get('HADOOP_HOME', '')}/lib/native")
    names = ("libhdfs.so", "libhdfs.dylib", "hdfs.dll")
    beside = any(os.path.exists(f"{home}/{name}") for home in homes if home for name in names)
    return beside or find_library("hdfs") is not None


def _authority(path: str) -> str:
    return path.partition("://")[2].partition("/")[0]


@lru_cache(maxsize=32)
def _filesystem(authority: str, items: tuple[tuple[str, str], ...]) -> Any:
    """The file system of `host:port`; without a host that of the properties, else the one that Hadoop's
    configuration names.
    """
    properties = dict(items)
    host, _, port = authority.partition(":")
    if not host:
        host, port = properties.get("hdfs.host", "default"), properties.get("hdfs.port", "0")
    return fs.HadoopFileSystem(host, int(port or 0), user=properties.get("hdfs.user"))
