"""Object stores (S3, Google Cloud Storage, Azure) through obstore.

Holds data, manifests and metadata. Creating a file exclusively is a conditional put (`If-None-Match: *`, on
Google Cloud Storage generation 0), so a path alone can be a table's catalog where the store honours it.
Invariants: only properties are pickled, each process opens its own connections; a file is visible when it is
complete, never before.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from streamlake.errors import InvalidOptionError, MissingFileError, StorageError
from streamlake.storage.file_info import FileInfo, Fingerprint
from streamlake.storage.object_clients import client
from streamlake.storage.object_settings import AZURE_SCHEMES, GCS_SCHEMES, S3_SCHEMES
from streamlake.storage.object_streams import ObjectInput, ObjectOutput

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_CLOCK = ("RequestTimeTooSkewed", "RequestExpired")
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired")
_CODE = re.compile(r"<Code>([^<]+)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_LONGEST_REASON = 300


@dataclass(frozen=True)
class ObjectFileIO:
    """FileIO over the object stores of one URI scheme.

    `properties` have the names that Iceberg and PyIceberg use.
    """

    scheme: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash((self.scheme, tuple(sorted(self.properties.items()))))

    def with_fsync(self, on: bool) -> ObjectFileIO:
        """Itself: what the service has acknowledged is durable."""
        del on
        return self

    def read_bytes(self, path: str) -> bytes:
        """The whole content of `path`."""
        store, key = self._at(path)
        with _errors("reading", path):
            return bytes(obstore.get(store, key).bytes())

    def open_input(self, path: str) -> BinaryIO:
        """A seekable stream on `path`; what it reads raises OSError."""
        store, key = self._at(path)
        with _errors("opening", path):
            return cast(BinaryIO, ObjectInput(store, key, path))

    def open_output(self, path: str) -> BinaryIO:
        """A stream that (over)writes `path`; the object is there when the stream is closed."""
        store, key = self._at(path)
        return cast(BinaryIO, ObjectOutput(store, key, path))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace `path` by `data`; the object shows when it is complete."""
        store, key = self._at(path)
        with _errors("writing", path):
            obstore.put(store, key, data)

    def create_exclusive(self, path: str, data: bytes) -> Fingerprint | None:
        """Create `path` with `data` by a conditional put; its fingerprint, where the answer has it.

        Raises FileExistsError when it exists.
        """
        store, key = self._at(path)
        with _errors("creating", path):
            try:
                made = obstore.put(store, key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                raise FileExistsError(errno.EEXIST, "the object exists", path) from None
        tag = made["e_tag"]
        return None if tag is None else (len(data), tag)

    def sync(self, path: str) -> None:
        """Does nothing: what the service has acknowledged is durable."""

    def exists(self, path: str) -> bool:
        """Whether there is a file at `path`."""
        store, key = self._at(path)
        try:
            with _errors("looking for", path):
                obstore.head(store, key)
        except MissingFileError:
            return False
        return True

    def delete(self, path: str) -> None:
        """Remove the file at `path`; a missing file is no error."""
        store, key = self._at(path)
        try:
            with _errors("deleting", path):
                obstore.delete(store, key)
        except MissingFileError:
            return

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove many files with few requests, where the service can; missing files are no error on S3.

        Raises StorageError where any file may be left.
        """
        keys: dict[str, tuple[Any, list[str]]] = {}
        for path in paths:
            store, key = self._at(path)
            keys.setdefault(path[: len(path) - len(key)], (store, []))[1].append(key)
        for bucket, (store, found) in keys.items():
            with _errors("deleting files in", bucket):
                obstore.delete(store, found)

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        """Every file below `path`, at any depth."""
        store, key = self._at(path.rstrip("/"))
        head = path.rstrip("/")[: len(path.rstrip("/")) - len(key)]
        with _errors("listing", path):
            for chunk in obstore.list(store, prefix=key or None):
                for info in chunk:
                    yield _info(head, info)

    def list_level(self, path: str) -> tuple[list[FileInfo], list[str]]:
        """The files directly in the directory `path`, and its directories."""
        store, key = self._at(path.rstrip("/"))
        head = path.rstrip("/")[: len(path.rstrip("/")) - len(key)]
        with _errors("listing", path):
            found = obstore.list_with_delimiter(store, prefix=key or None)
        return [_info(head, each) for each in found["objects"]], [
            f"{head}{each.rstrip('/')}" for each in found["common_prefixes"]
        ]

    def size(self, path: str) -> int:
        """Size of `path` in bytes."""
        store, key = self._at(path)
        with _errors("reading the size of", path):
            return int(obstore.head(store, key)["size"])

    def fingerprint(self, path: str) -> Fingerprint:
        """Size and entity tag: two objects of one name may well have the same size."""
        store, key = self._at(path)
        with _errors("looking at", path):
            found = obstore.head(store, key)
        return int(found["size"]), found["e_tag"] or ""

    def _at(self, path: str) -> tuple[Any, str]:
        """The client of the path's bucket, and the object's key there."""
        scheme, _, rest = path.partition("://")
        authority, _, key = rest.partition("/")
        if rest and scheme.lower() not in _family(self.scheme):
            raise InvalidOptionError(
                f"{path}: the table is on {self.scheme}://, and so must be all of its files"
            )
        if not authority:
            raise InvalidOptionError(f"{path}: the bucket is missing; write {self.scheme}://bucket/...")
        if any(part in ("", ".", "..") for part in key.split("/")) and key:
            raise InvalidOptionError(
                f"{path}: a location in an object store cannot have empty parts, '.' or '..' between slashes"
            )
        return client(self.scheme, authority, self.properties), key


def _family(scheme: str) -> tuple[str, ...]:
    """The schemes that one client serves."""
    return next((each for each in (S3_SCHEMES, GCS_SCHEMES, AZURE_SCHEMES) if scheme in each), (scheme,))


def was_refused(error: StorageError) -> bool:
    """Whether an object store has refused a request, so that it certainly did nothing."""
    cause = error.__cause__
    return isinstance(cause, (PermissionDeniedError, UnauthenticatedError)) or any(
        each in str(cause) for each in _NO_BUCKET
    )


def _info(head: str, info: Any) -> FileInfo:
    return FileInfo(head + info["path"], int(info["size"]), int(info["last_modified"].timestamp() * 1000))


@contextmanager
def _errors(action: str, path: str) -> Iterator[None]:
    """Context manager: the client's errors become StorageErrors that say what to do."""
    try:
        yield
    except FileExistsError:
        raise
    except (BaseError, OSError, ValueError) as cause:
        raise _error(action, path, cause) from cause


def _error(action: str, path: str, cause: Exception) -> StorageError:
    text = str(cause)
    code = _CODE.search(text)
    reason = text.partition("\n\nDebug source")[0].strip()[:_LONGEST_REASON]
    said = reason if code is None else ": ".join(filter(None, code.groups()))
    bucket = path.partition("://")[2].partition("/")[0]
    if any(each in text for each in _NO_BUCKET):
        return StorageError(
            f"{action} {path}: there is no bucket '{bucket}'; check its name and the endpoint"
        )
    if isinstance(cause, FileNotFoundError):
        return MissingFileError(f"{action} {path}: there is no such file; it was deleted or never written")
    if any(each in text for each in _CLOCK):
        return StorageError(f"{action} {path}: {said}; the clock of this machine is wrong, set it right")
    if any(each in text for each in _EXPIRED):
        return StorageError(
            f"{action} {path}: the credentials have expired ({said}); those of a catalog are renewed on the "
            "driver before each checkpoint, but not inside of a task: have the catalog vend some that live "
            "longer than a checkpoint takes"
        )
    if isinstance(cause, PermissionDeniedError) or "code: AccessDenied" in text:
        return StorageError(
            f"{action} {path}: permission denied ({said}); give these credentials access to the path"
        )
    if isinstance(cause, UnauthenticatedError):
        return StorageError(
            f"{action} {path}: the credentials are not accepted ({said}); check the access key and the secret"
        )
    return StorageError(f"{action} {path}: {reason}; the operation may be retried")
