"""The shapes that writers are composed of: what a file holds, and where rows go.

What (`ContentFile`: data here, later position and equality deletes) x how (a format's DataFileWriter below it) x
where (`RowsWriter`: rolling, one partition's buffer, fanout, clustered). Any combination works, because a RowsWriter
knows nothing of the content but these methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from streamlake.spec.data_file import DataFile


class ContentFile(Protocol):
    """One open file. `write` many times, then exactly one of `close` and `abort`; not thread-safe."""

    @property
    def path(self) -> str:
        """Where the file is."""
        ...

    @property
    def record_count(self) -> int:
        """Rows taken so far."""
        ...

    @property
    def bytes_written(self) -> int:
        """About how large the file would be if it were closed now."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Memory held by rows that are not encoded yet."""
        ...

    def write(self, rows: pa.Table) -> None:
        """Take rows of the content's schema."""
        ...

    def flush(self) -> None:
        """Encode what is buffered."""
        ...

    def close(self) -> DataFile:
        """Finish the file and describe it for a manifest."""
        ...

    def abort(self) -> None:
        """Give the file up; never raises."""
        ...


class RowsWriter(Protocol):
    """Takes the rows of a task and turns them into files. `write` many times, then `close` or `abort` once."""

    def write(self, rows: pa.Table) -> None:
        """Take rows; the table may be kept until they are written."""
        ...

    def close(self) -> tuple[DataFile, ...]:
        """Write what is left and describe all files."""
        ...

    def abort(self) -> None:
        """Close what is open without finishing it; never raises. Removal of the files is the task's."""
        ...


OpenFile = Callable[[tuple[Any, ...]], ContentFile]
"""Opens a new file for a partition tuple; called once per file, when its first rows are there."""
