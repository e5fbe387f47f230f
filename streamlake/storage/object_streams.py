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

from streamlake.storage.ranged_input import TAIL, RangedInput

_PART = 8 * 1024 * 1024
"""Bytes of a part of a large upload; what is not larger is one put."""


class ObjectInput(RangedInput):
    """A seekable stream on an object of a store. Raises OSError when reading fails."""

    def __init__(self, store: Any, key: str, name: str) -> None:
        self._store = store
        self._key = key
        super().__init__(name, *self._opened())

    def _opened(self) -> tuple[int, Any, int]:
        """The place and content of what the first request brings, and the object's size."""
        try:
            found = obstore.get(self._store, self._key, options={"range": {"suffix": TAIL}})
        except FileNotFoundError:
            raise
        except BaseError:
            # An empty object has no range, and not every store knows ranges from the end.
            size = int(obstore.head(self._store, self._key)["size"])
            return 0, b"", size
        return found.range[0], found.bytes(), int(found.meta["size"])

    def _range(self, start: int, end: int) -> Any:
        try:
            return obstore.get_range(self._store, self._key, start=start, end=end)
        except (BaseError, ValueError) as error:
            raise OSError(f"reading {self.name}: {error}") from error


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
