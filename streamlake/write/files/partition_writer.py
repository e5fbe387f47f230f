"""The writer of one partition: rows are sorted when the table has a sort order, then rolled into files."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.files.rolling import RollingWriter
from streamlake.write.files.writers import ContentFile
from streamlake.write.rows.sort import RowSorter


class PartitionWriter:
    """Rows of one partition, sorted in stretches of about `sort_bytes` where there is a `sorter`.

    A file whose stretches follow one another in order is sorted as a whole; the file's content detects that.
    """

    def __init__(
        self,
        open_file: Callable[[], ContentFile],
        target_bytes: int,
        sorter: RowSorter | None = None,
        sort_bytes: int = 0,
    ) -> None:
        self._rolling = RollingWriter(open_file, target_bytes)
        self._sorter = sorter
        self._sort_bytes = sort_bytes
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether a file is open now."""
        return self._rolling.is_open

    def write(self, rows: pa.Table) -> None:
        """Take rows of the partition."""
        if self._sorter is None:
            self._rolling.write(rows)
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= self._sort_bytes:
            self._write_sorted()

    def flush(self) -> None:
        """Sort and encode everything that waits, to free memory."""
        self._write_sorted()
        self._rolling.flush()

    def take_files(self) -> tuple[DataFile, ...]:
        """The files finished since the last call."""
        return self._rolling.take_files()

    def close(self) -> tuple[DataFile, ...]:
        """Write what waits, finish the open file and describe the files since the last `take_files`."""
        self._write_sorted()
        return self._rolling.close()

    def abort(self) -> None:
        """Drop the rows that wait and close what is open without finishing it; never raises."""
        self._waiting = []
        self._rolling.abort()

    def _write_sorted(self) -> None:
        if not self._waiting or self._sorter is None:
            return
        rows = self._sorter.sort(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        self._rolling.write(rows)
