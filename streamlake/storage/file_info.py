"""File information from listings, and the translation of operating system errors to streamlake's.

Shared by the FileIO implementations. Invariant: no `OSError` leaves this package except `FileExistsError`
from `create_exclusive`, which is a result and not a failure.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamlake.errors import MissingFileError, StorageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


Fingerprint = tuple[int | str, ...]
"""What distinguishes a file from another one of the same name, without reading it."""


@dataclass(frozen=True)
class FileInfo:
    """One file: its path in the style of the listed prefix, its size in bytes, its last change (epoch ms)."""

    path: str
    size: int
    modified_ms: int


def storage_error(action: str, path: str, cause: OSError) -> StorageError:
    """The StorageError for `cause`; it names the operation, the path and what to do next."""
    if isinstance(cause, FileNotFoundError) or cause.errno == errno.ENOENT:
        return MissingFileError(f"{action} {path}: there is no such file; it was deleted or never written")
    if cause.errno in _FULL:
        advice = "no space left; free space (or raise the quota) on the device of this path, then run again"
    elif cause.errno == errno.EROFS:
        advice = "the file system is read-only; mount it writable or choose another location"
    elif cause.errno in _FORBIDDEN:
        advice = "permission denied; give this user access to the path or choose another location"
    elif cause.errno == errno.ENAMETOOLONG:
        advice = (
            "the name is too long for the file system; partition by a shorter value, e.g. truncate(32, col)"
        )
    elif cause.errno in (errno.EMFILE, errno.ENFILE):
        advice = "too many open files; raise the limit (ulimit -n)"
    else:
        advice = f"{cause.strerror or cause}; the operation may be retried"
    return StorageError(f"{action} {path}: {advice}")


@contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """Context manager: every OSError becomes a StorageError.

    Reads and writes of an opened stream belong inside it.
    """
    try:
        yield
    except OSError as cause:
        raise storage_error(action, path, cause) from cause
