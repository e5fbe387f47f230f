"""A file of the key index while it is written, at a known place and to its end or not at all.

Invariant: a file that was not finished is deleted.
"""

from __future__ import annotations

from typing import BinaryIO

from streamlake.storage.file_io import FileIO, storage_errors


class IndexFile:
    """Writes the file at `path` from its beginning; `_at` is how many bytes are written.

    Raises StorageError when the storage fails; then the file is already deleted.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._at = 0
        self._stream: BinaryIO = io.open_output(path)

    def abort(self) -> None:
        """Give up and delete the file."""
        try:
            with storage_errors("writing", self._path):
                self._stream.close()
        finally:
            self._io.delete(self._path)

    def _write(self, data: bytes | memoryview) -> None:
        if not len(data):
            return
        try:
            with storage_errors("writing", self._path):
                self._stream.write(data)
        except Exception:
            self.abort()
            raise
        self._at += len(data)

    def _finish(self) -> None:
        try:
            with storage_errors("writing", self._path):
                self._stream.close()
        except Exception:
            self.abort()
            raise
