"""Streams on objects: ranged reads, and writes in one put or in parts.

Arrow's readers and writers take them as Python files. Invariants: opening an input is one request, which
brings the end of the object, where columnar files have their footer, and the whole of a small one; an output
that is not closed leaves no object.
"""

from __future__ import annotations

import io
from typing import Any

import obstore
from obstore.exceptions import BaseError

_TAIL = 128 * 1024
"""Bytes that opening an input reads: footers of most files, and small files as a whole."""
_AHEAD = 4 * 1024 * 1024
"""Bytes that reading on asks for at once."""
_PART = 8 * 1024 * 1024
"""Bytes of a part of a large upload; what is not larger is one put."""


class ObjectInput(io.RawIOBase):
    """A seekable stream on an object of a store. Raises OSError when reading fails."""

    def __init__(self, store: Any, key: str, name: str) -> None:
        super().__init__()
        self.name = name
        self._store = store
        self._key = key
        self._at = 0
        self._first, self._held, self._size = self._opened()

    def _opened(self) -> tuple[int, memoryview, int]:
        """The place and content of what the first request brings, and the object's size."""
        try:
            found = obstore.get(self._store, self._key, options={"range": {"suffix": _TAIL}})
        except FileNotFoundError:
            raise
        except BaseError:
            # An empty object has no range, and not every store knows ranges from the end.
            size = int(obstore.head(self._store, self._key)["size"])
            return 0, memoryview(b""), size
        return found.range[0], memoryview(found.bytes()), int(found.meta["size"])

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
        """The size of the object in bytes."""
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
        try:
            data = obstore.get_range(self._store, self._key, start=self._at, end=until)
        except (BaseError, ValueError) as error:
            raise OSError(f"reading {self.name}: {error}") from error
        self._first, self._held = self._at, memoryview(data)


class ObjectOutput(io.RawIOBase):
    """A stream that writes an object of a store when it is closed. Raises OSError when that fails.

    A stream that is left by an exception in a `with` block writes nothing.
    """

    def __init__(self, store: Any, key: str, name: str) -> None:
        super().__init__()
        self.name = name
        self._at = 0
        self._writer = obstore.open_writer(store, key, buffer_size=_PART)

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The number of bytes written."""
        return self._at

    def write(self, data: Any) -> int:
        """Take the bytes; their number."""
        if self.closed:
            raise ValueError(f"{self.name} is closed")
        view = memoryview(data).cast("B")
        try:
            self._writer.write(bytes(view) if not view.c_contiguous else view)
        except (BaseError, ValueError) as error:
            raise OSError(f"writing {self.name}: {error}") from error
        self._at += len(view)
        return len(view)

    def close(self) -> None:
        """Write what is left; the object is there now."""
        if self.closed:
            return
        super().close()
        try:
            self._writer.close()
        except (BaseError, ValueError) as error:
            raise OSError(f"writing {self.name}: {error}") from error

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
            return
        # What was written so far is no file: without this end of the upload it never shows.
        io.RawIOBase.close(self)

    def __del__(self) -> None:
        # A stream that nobody has closed was given up; closing it here would show half a file.
        io.RawIOBase.close(self)
