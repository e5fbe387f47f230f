"""Writes large files past the page cache, for files that nobody on this machine reads soon.

Used for metadata files, which list every snapshot and so grow with the table. In the page cache each version
would evict pages that are needed, and on a virtual machine the fresh pages cost more than the disk.
Invariant: a file is written whole or not at all. A file system that refuses is no failure: the caller then
writes as usual.
"""

from __future__ import annotations

import mmap
import os
import threading

LARGE_BYTES = 256 * 1024
_ALIGNMENT = 4096
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_MOST_KEPT = 64 * 1024 * 1024
_local = threading.local()


def write_direct(path: str, data: bytes) -> bool:
    """Write `data` to the existing, empty file `path` without the page cache.

    False when that is not possible; the file may then hold anything.
    """
    if not _DIRECT or len(data) < LARGE_BYTES:
        return False
    length = -(-len(data) // _ALIGNMENT) * _ALIGNMENT
    try:
        with memoryview(_buffer(length)) as buffer:
            buffer[: len(data)] = data
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | _DIRECT)
            try:
                written = os.write(descriptor, buffer[:length])
                os.ftruncate(descriptor, len(data))
            finally:
                os.close(descriptor)
    except OSError:
        return False
    return written == length


def _buffer(length: int) -> mmap.mmap:
    """Page-aligned memory of at least `length` bytes; the thread keeps it for its next file."""
    kept: mmap.mmap | None = getattr(_local, "buffer", None)
    if kept is not None and len(kept) >= length:
        return kept
    fresh = mmap.mmap(-1, length * 5 // 4 // _ALIGNMENT * _ALIGNMENT + _ALIGNMENT)
    _local.buffer = fresh if length <= _MOST_KEPT else None
    return fresh
