"""A FileIO over real files whose n-th call fails, does half of its work, loses its answer, or is late.

    io = FaultyIO([Fault("delete", nth=0), Fault("write_bytes", "*/streamlake/*.json", how=HALF)])
    table = faulty_table(location, io)

What FileIO promises holds in a failure too: `write_bytes` and `create_exclusive` are atomic, so half of their work is half
of a file under another name, whereas half of a stream is half of the file itself.
"""

from __future__ import annotations

import errno
import fnmatch
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.errors import StorageError
from streamlake.storage.file_info import FileInfo
from streamlake.storage.local import LocalFileIO, local_path
from streamlake.table.table import Table

FAIL, HALF, LOST, LATE = "fail", "half", "lost", "late"
"""Nothing is done; half of it is; all of it is, and the caller is not told; all of it is, after `meanwhile`."""
WRITING = ("open_output", "write_bytes", "create_exclusive")
OPERATIONS = (*WRITING, "read_bytes", "open_input", "exists", "delete", "list_prefix", "size")


@dataclass(frozen=True)
class Fault:
    """What happens to the `nth` call (0: to each) of `operation` ("*": of any) on paths like `path`.

    `meanwhile` is called before a call that is LATE: what others do, or how long it takes.
    """

    operation: str
    path: str = "*"
    nth: int = 1
    how: str = FAIL
    meanwhile: Callable[[], None] = lambda: None

    def concerns(self, operation: str, path: str) -> bool:
        return self.operation in (operation, "*") and fnmatch.fnmatch(path, self.path)


@dataclass(frozen=True)
class FaultyIO(LocalFileIO):
    """Local files with faults. `calls` is everything that was asked, as (operation, path)."""

    faults: Sequence[Fault] = ()
    calls: list[tuple[str, str]] = field(default_factory=list, compare=False)
    _counts: Counter[int] = field(default_factory=Counter, compare=False)

    def read_bytes(self, path: str) -> bytes:
        how = self._met("read_bytes", path)
        data = super().read_bytes(path)
        if how is not None:
            raise _failed("read_bytes", path)
        return data

    def open_input(self, path: str) -> BinaryIO:
        if self._met("open_input", path) is not None:
            raise _failed("open_input", path)
        return super().open_input(path)

    def open_output(self, path: str) -> BinaryIO:
        how = self._met("open_output", path)
        stream = super().open_output(path)
        return stream if how is None else cast(BinaryIO, _BreakingStream(stream, path, how))

    def write_bytes(self, path: str, data: bytes) -> None:
        how = self._met("write_bytes", path)
        if how == HALF:
            _leave_half(path, data)
            raise _failed("write_bytes", path)
        super().write_bytes(path, data)
        if how == LOST:
            raise _failed("write_bytes", path)

    def create_exclusive(self, path: str, data: bytes) -> None:
        how = self._met("create_exclusive", path)
        if how == HALF:
            _leave_half(path, data)
            raise _failed("create_exclusive", path)
        super().create_exclusive(path, data)
        if how == LOST:
            raise _failed("create_exclusive", path)

    def exists(self, path: str) -> bool:
        if self._met("exists", path) is not None:
            raise _failed("exists", path)
        return super().exists(path)

    def delete(self, path: str) -> None:
        how = self._met("delete", path)
        super().delete(path)
        if how is not None:
            raise _failed("delete", path)

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        how = self._met("list_prefix", path)
        found = list(super().list_prefix(path))
        if how is None:
            yield from found
            return
        yield from found[: len(found) // 2]
        raise _failed("list_prefix", path)

    def size(self, path: str) -> int:
        if self._met("size", path) is not None:
            raise _failed("size", path)
        return super().size(path)

    def _met(self, operation: str, path: str) -> str | None:
        """How this call goes wrong; None: not at all. Raises where nothing of it is to be done."""
        self.calls.append((operation, path))
        for number, fault in enumerate(self.faults):
            if fault.concerns(operation, path):
                self._counts[number] += 1
                if fault.nth in (0, self._counts[number]):
                    if fault.how == FAIL:
                        raise _failed(operation, path)
                    if fault.how != LATE:
                        return fault.how
                    fault.meanwhile()
        return None


class _BreakingStream(io.RawIOBase):
    """Half of the first write reaches the file, and nothing after it; LOST: all does, and closing it fails."""

    def __init__(self, stream: BinaryIO, path: str, how: str) -> None:
        self._stream = stream
        self._path = path
        self._how = how

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        data = memoryview(data).cast("B")
        if self._how == LOST:
            self._stream.write(data)
            return len(data)
        self._stream.write(data[: len(data) // 2])
        raise _broken(self._path)

    def flush(self) -> None:
        if not self.closed and not self._stream.closed:
            self._stream.flush()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        self._stream.close()
        if self._how == LOST:
            raise _broken(self._path)


def faulty_table(location: str, io: FaultyIO) -> Table:
    """The Hadoop table at `location`, every byte of which goes through `io`."""
    operations = HadoopTableOperations(location, io)
    operations.refresh()
    return Table(location, operations)


def _leave_half(path: str, data: bytes) -> None:
    directory, name = os.path.split(local_path(path))
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/.{name}.half.tmp", "wb") as file:
        file.write(data[: len(data) // 2])


def _failed(operation: str, path: str) -> StorageError:
    return StorageError(f"{operation} of {path} failed, as it was told to")


def _broken(path: str) -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO), path)
