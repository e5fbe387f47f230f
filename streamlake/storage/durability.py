"""Makes files of a local file system durable, so that they survive a loss of power.

Used by `LocalFileIO`, and for the few files that are written without it. A file is durable when its bytes
are, its name in its directory is, and so are the names of that directory and of all above it. Invariant: once
a file is reported as written, another file may refer to it, because nothing of it can be lost any more.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

import pyarrow as pa

from streamlake.options import Property

FSYNC = "streamlake.write.fsync"
"""The table property that turns syncing off for the files of a table."""
PROPERTIES = (
    Property(
        FSYNC,
        "true",
        "Whether files on a local file system are synced, so that they outlive a loss of power. Object "
        "stores and HDFS make no difference.",
    ),
)
_MOST_DIRECTORIES = 10_000
_NOTHING_TO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Errors of devices, pipes and some mounted file systems that cannot be synced."""
_NOT_FOR_US = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR})
"""Errors for directories that this user may not open, or on systems where none can be opened."""
_reached: OrderedDict[str, tuple[int, int]] = OrderedDict()
"""Directories whose names this process has made durable up to the root; values are (device, inode)."""
_reached_lock = threading.Lock()


def wants_fsync(properties: Mapping[str, str]) -> bool:
    """Whether files of a table with these properties are synced.

    An invalid value is refused where options are read.
    """
    return str(properties.get(FSYNC, "true")).strip().lower() != "false"


def sync_descriptor(descriptor: int) -> None:
    """Wait until the device has stored what was written to an open file or directory. Raises OSError."""
    if sys.platform == "darwin":
        # On macOS fsync leaves the bytes in the device's own cache.
        fcntl = import_module("fcntl")
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    try:
        os.fsync(descriptor)
    except OSError as cause:
        if cause.errno not in _NOTHING_TO_SYNC:
            raise


def sync_file(path: str) -> None:
    """Make the bytes of the closed file at `path` durable, but not its name. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_names(directory: str) -> None:
    """Make the names in `directory` durable, and its own name with those of all directories above it.

    The latter is done once per process: another process may have made the directory a moment ago, and died
    before its name was durable. Raises OSError.
    """
    status = _sync_directory(directory)
    key = os.path.abspath(directory)
    with _reached_lock:
        known = status is not None and _reached.get(key) == status
    parent = os.path.dirname(key)
    if known or parent == key:
        return
    sync_names(parent)
    with _reached_lock:
        if status is not None:
            _reached[key] = status
        while len(_reached) > _MOST_DIRECTORIES:
            _reached.popitem(last=False)


class SyncedFile(pa.OSFile):  # type: ignore[misc]
    """A file that is durable, with its name, when `close` returns."""

    def __init__(self, path: str, mode: str) -> None:
        del mode  # the base class is made by `__new__`, with both
        self._target = path

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # The file of a writer that failed is not synced.
        if kind is not None:
            super().close()
        else:
            self.close()

    def close(self) -> None:
        """Close and sync the file. Raises OSError when the device could not store it."""
        if self.closed:
            return
        super().close()
        sync_file(self._target)
        sync_names(os.path.dirname(self._target))


def _sync_directory(directory: str) -> tuple[int, int] | None:
    """Sync one directory and return its device and inode.

    None where the directory cannot be opened: its file system then decides what is durable.
    """
    try:
        descriptor = os.open(directory or ".", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as cause:
        if cause.errno in _NOT_FOR_US:
            return None
        raise
    try:
        sync_descriptor(descriptor)
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_dev, status.st_ino
