"""Storage in memory that fails, stops or dies at a chosen step: thousands of crashes a minute without a file.

`MemoryFiles` are the bytes, which outlive every driver; a `MemoryFileIO` is one driver's door to them. Every call that
changes something is a step, and so is the swap of a catalog that is no file (`step` is there for it). A `Fault` waits
for the n-th step from the time it is armed. Invariant: a driver that has died does nothing any more, as after SIGKILL:
whatever its exception handlers try raises `Died` again and changes nothing.

The bytes are there twice: as processes see them, and as the device has them. What a FileIO without fsync writes, and
what anybody deletes, is seen at once and lies on the device when it likes: a loss of power decides.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import pyarrow as pa

from streamlake.errors import MissingFileError, StorageError
from streamlake.storage.file_info import FileInfo

KINDS = ("die-before", "die-after", "fail-before", "fail-after", "late", "meanwhile")
"""At the step: die without or with its effect, StorageError without or with its effect, or with its effect later on
(swaps only), or somebody else acts first."""


class Died(BaseException):
    """The driver is dead. No Exception, so that nobody takes it for an error that can be dealt with."""


@dataclass
class Fault:
    """What happens at the `at`-th step from now (0: the next); `meanwhile` is called for the kind of that name."""

    at: int
    kind: str
    meanwhile: Callable[[], None] | None = None


@dataclass
class MemoryFiles:
    """Paths and their bytes, as processes see them; `on_device` is what a loss of power leaves for certain, `lost` what
    losses of power have taken."""

    content: dict[str, bytes] = field(default_factory=dict)
    on_device: dict[str, bytes] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def put(self, path: str, data: bytes, *, synced: bool) -> None:
        self.content[path] = data
        self.lost.discard(path)
        if synced:
            self.on_device[path] = data

    def clear(self) -> None:
        self.content.clear()
        self.on_device.clear()

    def lose_power(self, chance: random.Random) -> None:
        """Of what is not certain, each file is there, or as it was before, or has its name and nothing in it."""
        for path in list({**self.content, **self.on_device}):
            now, before = self.content.get(path), self.on_device.get(path)
            if now == before:
                continue
            left = chance.choice([now, before] if now is None else [now, before, b""])
            if now is not None and left != now:
                self.lost.add(path)
            if left is None:
                self.content.pop(path, None)
            else:
                self.content[path] = left
        self.on_device = dict(self.content)


class MemoryFileIO:
    """One driver's FileIO over `files`; see the protocol for the methods."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._content = files.content
        self.fsync = True
        self.fault: Fault | None = None
        self.dead = False
        self.late: list[Callable[[], None]] = []

    def step(self, effect: Callable[[], None], *, swap: bool = False, undisturbed: bool = False) -> None:
        """Carry out one step, with what the armed fault makes of it. `swap`: a request that may arrive late; `undisturbed`:
        nobody else acts between the step before it and this one."""
        self._look_alive()
        fault = self.fault
        if fault is None:
            effect()
            return
        fault.at -= 1
        if fault.at >= 0:
            effect()
            return
        self.fault = None
        if fault.kind == "meanwhile":
            assert fault.meanwhile is not None
            for each in (effect, fault.meanwhile) if undisturbed else (fault.meanwhile, effect):
                each()
            return
        if fault.kind.endswith("after"):
            effect()
        if fault.kind == "late" and swap:
            self.late.append(effect)
        if fault.kind.startswith("die"):
            self.dead = True
            raise Died
        raise StorageError(f"the storage failed ({fault.kind})")

    def with_fsync(self, on: bool) -> MemoryFileIO:
        self.fsync = on
        return self

    def read_bytes(self, path: str) -> bytes:
        self._look_alive()
        try:
            return self._content[path]
        except KeyError:
            raise MissingFileError(f"reading {path}: there is no such file") from None

    def open_input(self, path: str) -> BinaryIO:
        return cast(BinaryIO, pa.BufferReader(self.read_bytes(path)))

    def open_output(self, path: str) -> BinaryIO:
        return _Output(lambda data: self.write_bytes(path, data))

    def write_bytes(self, path: str, data: bytes) -> None:
        self.step(lambda: self._files.put(path, bytes(data), synced=self.fsync))

    def create_exclusive(self, path: str, data: bytes) -> None:
        def effect() -> None:
            if path in self._content:
                raise FileExistsError(17, "the file is already there", path)
            self._files.put(path, bytes(data), synced=self.fsync)

        self.step(effect)

    def sync(self, path: str) -> None:
        self._files.on_device[path] = self.read_bytes(path)

    def place(self, path: str) -> None:
        """A task of the driver has written a file; no step of it."""
        self._files.put(path, b"rows", synced=self.fsync)

    def exists(self, path: str) -> bool:
        self._look_alive()
        return path in self._content

    def delete(self, path: str) -> None:
        def effect() -> None:
            self._content.pop(path, None)

        self.step(effect)

    def list_prefix(self, path: str) -> Iterator[FileInfo]:
        self._look_alive()
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self._content if name.startswith(prefix)]:
            yield FileInfo(name, len(self._content[name]), 0)

    def list_level(self, path: str) -> tuple[list[FileInfo], list[str]]:
        prefix = path.rstrip("/") + "/"
        found = list(self.list_prefix(path))
        below = {info.path[len(prefix) :].partition("/") for info in found}
        files = [info for info in found if "/" not in info.path[len(prefix) :]]
        return files, [f"{prefix}{name}" for name, slash, _ in below if slash]

    def size(self, path: str) -> int:
        return len(self.read_bytes(path))

    def _look_alive(self) -> None:
        if self.dead:
            raise Died


class _Output(io.BytesIO):
    def __init__(self, store: Callable[[bytes], None]) -> None:
        super().__init__()
        self._store = store

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._store(data)
