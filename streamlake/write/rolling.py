"""Rolling: the rows of one partition go into files of about the target size, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streamlake.spec.data_file import DataFile
from streamlake.write.writers import ContentFile

_FEWEST_ROWS = 1_000
_NEAR = 0.97


class RollingWriter:
    """Writes to an open file until it has about `target_bytes`, then goes on with a new one.

    `open_file` is called when there are rows for a new file, so no rows make no file. How many rows still fit is
    estimated from the bytes per row of the file so far. Invariant: at most one file is open.
    """

    def __init__(self, open_file: Callable[[], ContentFile], target_bytes: int) -> None:
        self._open_file = open_file
        self._target_bytes = target_bytes
        self._file: ContentFile | None = None
        self._files: list[DataFile] = []
        self._bytes_per_row: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether a file is open now."""
        return self._file is not None

    def write(self, rows: pa.Table) -> None:
        start = 0
        while start < rows.num_rows:
            file = self._file = self._file or self._open_file()
            part = rows.slice(start, self._rows_that_fit(file, rows))
            file.write(part)
            start += part.num_rows
            if self._is_full(file):
                self.roll()

    def flush(self) -> None:
        """Encode what the open file buffers, to free memory."""
        if self._file is not None:
            self._file.flush()

    def roll(self) -> None:
        """Finish the open file, if there is one."""
        if self._file is None:
            return
        self._bytes_per_row = max(1.0, self._file.bytes_written) / max(1, self._file.record_count)
        self._files.append(self._file.close())
        self._file = None

    def take_files(self) -> tuple[DataFile, ...]:
        """The files finished since the last call."""
        files, self._files = tuple(self._files), []
        return files

    def close(self) -> tuple[DataFile, ...]:
        self.roll()
        return self.take_files()

    def abort(self) -> None:
        if self._file is not None:
            self._file.abort()
            self._file = None

    def _rows_that_fit(self, file: ContentFile, rows: pa.Table) -> int:
        written = file.bytes_written
        if file.record_count:
            bytes_per_row = written / file.record_count
        else:
            bytes_per_row = self._bytes_per_row or rows.nbytes / rows.num_rows
        return max(_FEWEST_ROWS, int((self._target_bytes - written) / max(bytes_per_row, 0.01)) + 1)

    def _is_full(self, file: ContentFile) -> bool:
        """Rows that are only buffered have an uncertain size: they are encoded before the file is called full."""
        if file.bytes_written >= self._target_bytes * _NEAR and file.buffered_bytes:
            file.flush()
        return file.bytes_written >= self._target_bytes * _NEAR
