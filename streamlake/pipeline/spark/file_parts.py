"""Groups of data files with about the same number of rows, for Spark tasks that read them."""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.read.planning import FileScanTask


def file_parts(tasks: Sequence[FileScanTask], rows: int) -> list[list[FileScanTask]]:
    """Groups of files with about `rows` rows each, in their order."""
    parts: list[list[FileScanTask]] = []
    size = rows
    for task in tasks:
        if size >= rows:
            parts.append([])
            size = 0
        parts[-1].append(task)
        size += task.data_file.record_count
    return parts
