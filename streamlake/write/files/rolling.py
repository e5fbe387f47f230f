"""The rolling writer: rows of one partition go into files of about the target size, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.files.writers import ContentFile

_FEWEST_ROWS = 1_000
_NEAR = 0.97
_PROBE = 0.25
_LEAST_BYTES_PER_ROW = 0.01


class Stretch(NamedTuple):
    """Consecutive rows that were written to one file, from position `start` on."""

    path: str
    start: int
    rows: int


class RollingWriter:
    """Writes to an open file until it has about `target_bytes`, then goes on with a new one.

    `open_file` is called when there are rows for a new file, so no rows make no file. The bytes per row
    encoded so far give how many rows still fit. The first file finds this out early: a quarter of it is
    encoded alone, unless its row groups are smaller anyway. Invariant: at most one file is open.
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

    @property
    def open_path(self) -> str | None:
        """The path of the file that is open now."""
        return None if self._file is None else self._file.path

    @property
    def buffered_bytes(self) -> int:
        """Memory held by rows of the open file that are not encoded yet."""
        return 0 if self._file is None else self._file.buffered_bytes

    def write(self, rows: pa.Table) -> list[Stretch]:
        """Write rows; gives where they were written, in their order."""
        start, stretches = 0, []
        while start < rows.num_rows:
            file = self._file = self._file or self._open_file()
            part = rows.slice(start, self._rows_that_fit(file, rows))
            stretches.append(Stretch(file.path, file.record_count, part.num_rows))
            file.write(part)
            start += part.num_rows
            if self._is_full(file):
                self.roll()
        return stretches

    def flush(self) -> None:
        """Encode what the open file buffers, to free memory."""
        if self._file is not None:
            self._file.flush()

    def roll(self) -> None:
        """Finish the open file, if there is one."""
        if self._file is None:
            return
        self._files.append(self._file.close())
        self._file = None

    def take_files(self) -> tuple[DataFile, ...]:
        """The files finished since the last call."""
        files, self._files = tuple(self._files), []
        return files

    def close(self) -> tuple[DataFile, ...]:
        """Finish the open file; gives the files since the last `take_files`."""
        self.roll()
        return self.take_files()

    def abort(self) -> None:
        """Close the open file without finishing it; never raises."""
        if self._file is not None:
            self._file.abort()
            self._file = None

    def _rows_that_fit(self, file: ContentFile, rows: pa.Table) -> int:
        if self._bytes_per_row is None:
            left, per_row = self._target_bytes * _PROBE - file.bytes_written, rows.nbytes / rows.num_rows
        else:
            left, per_row = self._target_bytes - file.record_count * self._bytes_per_row, self._bytes_per_row
        return max(_FEWEST_ROWS, int(left / max(per_row, _LEAST_BYTES_PER_ROW)) + 1)

    def _is_full(self, file: ContentFile) -> bool:
        """Whether the file has its target size.

        Buffered rows have an uncertain size, so they are encoded before the answer is yes.
        """
        if self._bytes_per_row is None:
            near = file.bytes_written >= self._target_bytes * _PROBE
        else:
            near = file.record_count * self._bytes_per_row >= self._target_bytes * _NEAR
        if not near:
            return False
        file.flush()
        self._bytes_per_row = max(file.bytes_written / file.record_count, _LEAST_BYTES_PER_ROW)
        return file.bytes_written >= self._target_bytes * _NEAR
