"""A seekable stream on a remote file that is read by ranges.

Arrow's readers take it as a Python file. Invariant: the end of the file, where columnar files have their
footer, and the whole of a small one are held from the beginning.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import Any

TAIL = 128 * 1024
"""Bytes that opening an input reads: footers of most files, and small files as a whole."""
_AHEAD = 4 * 1024 * 1024
"""Bytes that reading on asks for at once."""


class RangedInput(io.RawIOBase):
    """The stream of a file of `size` bytes, of which `held` are known from `first` on.

    Raises OSError when reading fails.
    """

    def __init__(self, name: str, first: int, held: Any, size: int) -> None:
        super().__init__()
        self.name = name
        self._at = 0
        self._first, self._held, self._size = first, memoryview(held), size

    @abstractmethod
    def _range(self, start: int, end: int) -> Any:
        """The bytes of a range. Raises OSError."""

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._at

    def size(self) -> int:
        """The size of the file in bytes."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position. Raises ValueError for one before the beginning."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"{self.name}: there is no position {base + offset}")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, fewer at the end only; all that are left without it."""
        left = max(self._size - self._at, 0)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        start = self._at - self._first
        if start < 0 or start + count > len(self._held):
            self._fetch(count)
            start = 0
        data = bytes(self._held[start : start + count])
        if len(data) != count:
            raise OSError(f"{self.name}: {len(data)} bytes came for a range of {count}")
        self._at += count
        return data

    def readall(self) -> bytes:
        """All bytes that are left."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes; their number."""
        data = self.read(len(memoryview(buffer)))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def _fetch(self, count: int) -> None:
        """Hold `count` bytes from the position on, and what follows where reading goes on."""
        goes_on = self._at == self._first + len(self._held)
        wanted = max(count, _AHEAD) if goes_on else count
        until = min(self._at + wanted, self._size)
        self._first, self._held = self._at, memoryview(self._range(self._at, until))
