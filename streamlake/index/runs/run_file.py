"""Run files on the local disk: found or fetched, and verified once per process.

This is the step between storage and `run.open_run`. Invariant: a file that is handed out holds, byte for
byte, what the RunRef was made for. Copies in the cache are complete as soon as they have their final name, so
processes may share the directory.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, Protocol, TypeVar

from streamlake.clock import now_ms
from streamlake.errors import IndexDamagedError, MissingFileError
from streamlake.ids import new_uuid
from streamlake.index.runs.run_format import (
    ADVICE,
    HEAD,
    TRAILER_BYTES,
    BlockPlace,
    Footer,
    decode_footer,
    footer_place,
)
from streamlake.index.runs.run_writer import RunRef
from streamlake.storage.file_io import FileIO, storage_errors
from streamlake.storage.local import LocalFileIO, local_path

_CHUNK = 1 << 20
_KEPT_UNUSED_MS = 24 * 3600 * 1000
_VERIFY_THREADS = 2
_MOST_REMEMBERED = 100_000
_MOST_FOOTERS = 256
_MOST_PATHS = 200_000

Checked = TypeVar("Checked")


class IndexFile(Protocol):
    """A file of the index as others name it."""

    @property
    def path(self) -> str:
        """Its path."""
        ...

    @property
    def bytes(self) -> int:
        """Its size."""
        ...

    @property
    def crc(self) -> int:
        """The CRC-32 of its footer."""
        ...


_Identity = tuple[int, int, int, int, int]
_verified: set[_Identity] = set()
_footers: dict[_Identity, Footer] = {}
_lock = threading.Lock()


def checked_run_file(io: FileIO, ref: RunRef, cache_directory: str | None) -> tuple[BinaryIO, Footer]:
    """The run's verified file, open, and its footer; the caller closes the file.

    Raises as `run.open_run` does.
    """
    return local_file(io, ref, cache_directory, lambda local: _checked(local, ref))


def local_file(
    io: FileIO, ref: IndexFile, cache_directory: str | None, check: Callable[[str], Checked]
) -> Checked:
    """The result of `check` for the local path of a file of the index, which is copied where it is not local.

    `check` raises IndexDamagedError for a file that is not what `ref` was made for. A copy is made once more
    then.
    """
    if isinstance(io, LocalFileIO):
        return check(local_path(ref.path))
    directory = cache_directory or default_cache_directory()
    local = _cached(io, ref, directory)
    try:
        return check(local)
    except IndexDamagedError:
        with suppress(FileNotFoundError):
            os.unlink(local)
    return check(_cached(io, ref, directory))


def default_cache_directory() -> str:
    """The directory with this user's copies of run files, shared by all processes; created when missing."""
    path = os.path.join(tempfile.gettempdir(), f"streamlake-index-{os.getuid()}")
    with storage_errors("creating", path):
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        # A directory of another user could hold anything, so a private one is used.
        return _private_directory()
    return path


_private: list[str] = []


def _private_directory() -> str:
    with _lock:
        if not _private:
            _private.append(tempfile.mkdtemp(prefix="streamlake-index-"))
            atexit.register(shutil.rmtree, _private[0], ignore_errors=True)
        return _private[0]


def _checked(local: str, ref: RunRef) -> tuple[BinaryIO, Footer]:
    try:
        with storage_errors("opening", ref.path):
            file = open(local, "rb", buffering=0)  # noqa: SIM115 (the caller closes it)
    except MissingFileError as cause:
        raise IndexDamagedError(f"{ref.path}: the run is missing; {ADVICE}") from cause
    try:
        with storage_errors("reading", ref.path):
            return file, _check(file.fileno(), ref)
    except BaseException:
        file.close()
        raise


def _check(descriptor: int, ref: RunRef) -> Footer:
    """The footer of an open file, after the file has been compared with `ref`."""
    where = ref.path
    status = os.fstat(descriptor)
    size = status.st_size
    head = os.pread(descriptor, len(HEAD), 0)
    trailer = os.pread(descriptor, TRAILER_BYTES, max(size - TRAILER_BYTES, 0))
    offset, length, crc = footer_place(head, trailer, size, where)
    data = os.pread(descriptor, length, offset)
    if size != ref.bytes or crc != ref.crc:
        raise IndexDamagedError(f"{where}: not the file that the index state names; {ADVICE}")
    if zlib.crc32(data) != crc:
        raise IndexDamagedError(f"{where}: the footer's checksum does not match; {ADVICE}")
    identity = (status.st_dev, status.st_ino, size, status.st_mtime_ns, crc)
    footer = _footers.get(identity)
    if footer is None:
        footer = decode_footer(data, offset, where)
    if (footer.bucket, footer.buckets, footer.entries) != (ref.bucket, ref.buckets, ref.entries):
        raise IndexDamagedError(f"{where}: not the bucket that the index state names; {ADVICE}")
    if identity not in _verified:
        _verify_blocks(descriptor, footer, where)
        remember(identity)
    _remember_footer(identity, footer)
    return footer


def _remember_footer(identity: _Identity, footer: Footer) -> None:
    """Keep a footer, which names every data file of its run. So the next checkpoint need not decode it."""
    with _lock:
        if identity in _footers:
            return
        _footers[identity] = footer
        held = sum(len(each.paths) for each in _footers.values())
        while len(_footers) > 1 and (held > _MOST_PATHS or len(_footers) > _MOST_FOOTERS):
            held -= len(_footers.pop(next(iter(_footers))).paths)


def is_verified(identity: _Identity) -> bool:
    """Whether this process has verified the file."""
    return identity in _verified


def remember(identity: _Identity) -> None:
    """Record the file of this device, inode, size, change time and footer CRC as verified."""
    with _lock:
        if len(_verified) >= _MOST_REMEMBERED:
            _verified.clear()
        _verified.add(identity)


def _verify_blocks(descriptor: int, footer: Footer, where: str) -> None:
    # Read and not mapped, because mapped pages would count as memory of this process.
    def is_sound(block: BlockPlace) -> bool:
        crc, at, end = 0, block.offset, block.offset + block.length
        buffer = bytearray(min(_CHUNK, block.length))
        while at < end:
            with memoryview(buffer)[: min(_CHUNK, end - at)] as part:
                count = os.preadv(descriptor, [part], at)
                crc = zlib.crc32(part[:count], crc)
            if count == 0:
                return False
            at += count
        return crc == block.crc

    def verdicts() -> Iterator[bool]:
        if len(footer.blocks) < 2:
            yield from map(is_sound, footer.blocks)
            return
        with ThreadPoolExecutor(_VERIFY_THREADS) as pool:
            yield from pool.map(is_sound, footer.blocks)

    if not all(verdicts()):
        raise IndexDamagedError(f"{where}: a checksum does not match; {ADVICE}")


def _cached(io: FileIO, ref: IndexFile, directory: str) -> str:
    """The path of the local copy, fetched when it is not there."""
    name = hashlib.sha256(f"{ref.path} {ref.bytes} {ref.crc}".encode()).hexdigest()[:40]
    target = os.path.join(directory, f"{name}.run")
    with storage_errors("creating", directory):
        os.makedirs(directory, mode=0o700, exist_ok=True)
    if os.path.exists(target):
        with suppress(OSError):
            status = os.stat(target)
            # The access time says when a copy was last used; the change time is part of its identity.
            os.utime(target, ns=(now_ms() * 1_000_000, status.st_mtime_ns))
        return target
    temporary = f"{target}.{new_uuid()}.tmp"
    try:
        try:
            source = io.open_input(ref.path)
        except MissingFileError as cause:
            raise IndexDamagedError(f"{ref.path}: the file is missing; {ADVICE}") from cause
        with storage_errors("copying", ref.path), source, open(temporary, "xb") as copy:
            while chunk := source.read(_CHUNK):
                copy.write(chunk)
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _remove_unused(directory)
    return target


def _remove_unused(directory: str) -> None:
    """Delete copies, also incomplete ones, that no process has opened for a day."""
    limit_ns = (now_ms() - _KEPT_UNUSED_MS) * 1_000_000
    with suppress(OSError), os.scandir(directory) as found:
        for entry in found:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if max(status.st_atime_ns, status.st_mtime_ns) < limit_ns and stat.S_ISREG(status.st_mode):
                    os.unlink(entry.path)
