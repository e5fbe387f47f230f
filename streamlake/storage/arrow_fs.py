"""Object stores and HDFS through pyarrow.fs, configured by Iceberg's property names.

Holds data, manifests and metadata. It cannot create a file exclusively, so commits to a table here need a
catalog service. Invariant: only properties are pickled; each process opens its own connections.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, cast

from pyarrow import fs

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.storage.file_info import FileInfo, storage_errors

S3_SCHEMES = ("s3", "s3a", "s3n")
GCS_SCHEMES = ("gs", "gcs")
ARROW_SCHEMES = (*S3_SCHEMES, *GCS_SCHEMES, "abfs", "abfss", "hdfs", "viewfs")

_S3_TEXT = {
    "s3.endpoint": "endpoint_override",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
    "client.region": "region",
    "s3.role-arn": "role_arn",
    "s3.role-session-name": "session_name",
    "s3.proxy-uri": "proxy_options",
}
_S3_SECONDS = {"s3.connect-timeout": "connect_timeout", "s3.request-timeout": "request_timeout"}
_S3_FLAGS = ("s3.path-style-access", "s3.force-virtual-addressing", "s3.anonymous")
_S3_KNOWN = (*_S3_TEXT, *_S3_SECONDS, *_S3_FLAGS)


@dataclass(frozen=True)
class ArrowFileIO:
    """FileIO over a pyarrow FileSystem for one URI scheme.

    `properties` have the names that Iceberg and PyIceberg use.
    """

    scheme: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash((self.scheme, tuple(sorted(self.properties.items()))))

    @property
    def filesystem(self) -> Any:
        """The pyarrow FileSystem of this process. Raises InvalidOptionError for an unknown property."""
        return _filesystem(self.scheme, tuple(sorted(self.properties.items())))

    def with_fsync(self, on: bool) -> ArrowFileIO:
        """Itself: what the service has acknowledged is durable."""
        del on
        return self

    def read_bytes(self, path: str) -> bytes:
        """The whole content of `path`."""
        with storage_errors("reading", path), self.filesystem.open_input_file(self._key(path)) as stream:
            return cast(bytes, stream.read())

    def open_input(self, path: str) -> BinaryIO:
        """A seekable pyarrow stream on `path`."""
        with storage_errors("opening", path):
            return cast(BinaryIO, self.filesystem.open_input_file(self._key(path)))

    def open_output(self, path: str) -> BinaryIO:
        """A pyarrow stream that (over)writes `path`."""
        key = self._key(path)
        with storage_errors("creating", path):
            if self.scheme in ("hdfs", "viewfs"):
                self.filesystem.create_dir(key.rpartition("/")[0], recursive=True)
            return cast(BinaryIO, self.filesystem.open_output_stream(key))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace `path` by `data`; an object store shows the new object only when it is complete."""
        with storage_errors("writing", path), self.open_output(path) as stream:
            stream.write(data)

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Always FeatureUnsupportedError: pyarrow.fs has no conditional put."""
        del data
        raise FeatureUnsupportedError(
            f"creating {path}: {self.scheme}:// offers no atomic create here, so a path alone cannot be the "
            "table's catalog; give a catalog service (catalog=...) for tables on this storage"
        )

    def sync(self, path: str) -> None:
        """Does nothing: what the service has acknowledged is durable."""

    def exists(self, path: str) -> bool:
        """Whether there is a file at `path`."""
        with storage_errors("looking for", path):
            return bool(self.filesystem.get_file_info(self._key(path)).type == fs.FileType.File)

    def delete(self, path: str) -> None:
        """Remove the file at `path`; a missing file is no error."""
        try:
            with storage_errors("deleting", path):
                self.filesystem.delete_file(self._key(path))
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
            found = self.filesystem.get_file_info(selector)
        files = [
            FileInfo(head + info.path, info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in found
            if info.type == fs.FileType.File
        ]
        return files, [head + info.path for info in found if info.type == fs.FileType.Directory]

    def size(self, path: str) -> int:
        """Size of `path` in bytes."""
        with storage_errors("reading the size of", path):
            info = self.filesystem.get_file_info(self._key(path))
            if info.type != fs.FileType.File:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return int(info.size)

    def _key(self, path: str) -> str:
        """The path in pyarrow's form: bucket/key for object stores, the absolute path for HDFS."""
        rest = path.partition("://")[2]
        if self.scheme in ("hdfs", "viewfs"):
            return "/" + rest.partition("/")[2]
        if self.scheme in ("abfs", "abfss"):
            authority, _, key = rest.partition("/")
            return f"{authority.partition('@')[0]}/{key}"
        return rest


@lru_cache(maxsize=32)
def _filesystem(scheme: str, items: tuple[tuple[str, str], ...]) -> Any:
    properties = dict(items)
    if scheme in S3_SCHEMES:
        return fs.S3FileSystem(**s3_arguments(properties))
    if scheme in GCS_SCHEMES:
        token = properties.get("gcs.oauth2.token")
        return fs.GcsFileSystem(**({"access_token": token} if token else {}))
    if scheme in ("abfs", "abfss"):
        name = properties.get("adls.account-name")
        if not name:
            raise InvalidOptionError(
                f"{scheme}:// needs the property adls.account-name (and adls.account-key)"
            )
        return fs.AzureFileSystem(account_name=name, account_key=properties.get("adls.account-key"))
    host = properties.get("hdfs.host", "default")
    return fs.HadoopFileSystem(host, int(properties.get("hdfs.port", "0")), user=properties.get("hdfs.user"))


def s3_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Pyarrow's S3FileSystem arguments for `s3.*` properties.

    Raises InvalidOptionError for an unknown one.
    """
    arguments: dict[str, Any] = {}
    for key, value in properties.items():
        if key in _S3_TEXT:
            arguments[_S3_TEXT[key]] = value
        elif key in _S3_SECONDS:
            arguments[_S3_SECONDS[key]] = _seconds(key, value)
        elif key.startswith("s3.") and key not in _S3_FLAGS:
            close = difflib.get_close_matches(key, _S3_KNOWN, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(_S3_KNOWN)}"
            raise InvalidOptionError(f"unknown storage property {key}{hint}")
    if properties.get("s3.region"):
        arguments["region"] = properties["s3.region"]
    virtual = _flag(properties, "s3.force-virtual-addressing")
    path_style = _flag(properties, "s3.path-style-access")
    if virtual is None and path_style is not None:
        virtual = not path_style
    if virtual is not None:
        arguments["force_virtual_addressing"] = virtual
    if _flag(properties, "s3.anonymous"):
        arguments["anonymous"] = True
    return arguments


def _flag(properties: Mapping[str, str], key: str) -> bool | None:
    text = properties.get(key)
    if text is None:
        return None
    if str(text).lower() not in ("true", "false"):
        raise InvalidOptionError(f"{key} must be true or false, not {text!r}")
    return str(text).lower() == "true"


def _seconds(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidOptionError(f"{key} must be a number of seconds, not {value!r}") from None
