"""The content "data": rows of the table in a data file, described as a DataFile with content 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamlake.failpoints import failpoint
from streamlake.formats.data_files import DataWriters
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.write.files.open_content import OpenContent
from streamlake.write.rows.sort import RowSorter
from streamlake.write.target.target import WriteTarget


class DataContent(OpenContent):
    """One open data file of one partition.

    With a `sorter`, the tables given to `write` are sorted by it; the file carries the sort order's id only
    when they also follow one another in that order.
    """

    def __init__(
        self,
        target: WriteTarget,
        writers: DataWriters,
        path: str,
        partition: tuple[Any, ...],
        sorter: RowSorter | None = None,
    ) -> None:
        super().__init__(writers, path, target.options.file_format, target.spec.spec_id, partition)
        self._sort_order_id = target.sort_order.order_id
        self._sorter = sorter
        self._last_row: pa.Table | None = None
        self._sorted = sorter is not None
        failpoint("data-file-opened")

    def write(self, rows: pa.Table) -> None:
        """Take rows of the table."""
        if self._sorter is not None and rows.num_rows:
            if self._sorted and self._last_row is not None:
                self._sorted = self._sorter.in_order(self._last_row, rows.slice(0, 1))
            self._last_row = rows.take([rows.num_rows - 1])  # a copy: a slice would keep all rows alive
        self._writer.write(rows)

    def close(self) -> DataFile:
        """Finish the file and describe it, with the sort order's id where the whole file is sorted."""
        file = self._described(FileContent.DATA, self._writer.close())
        failpoint("data-file-closed")
        return replace(file, sort_order_id=self._sort_order_id if self._sorted else None)
