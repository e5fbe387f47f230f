"""The protocols that writers are composed of: the content of a file, and how rows are divided into files.

The parts are content (`ContentFile`: data, position deletes or equality deletes), format (a DataFileWriter
below it) and division (`RowsWriter`: rolling, one partition's buffer, fanout, clustered). Any combination
works, because a RowsWriter knows only these methods of the content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from streamlake.spec.metadata.data_file import DataFile


class ContentFile(Protocol):
    """One open file. Call `write` many times, then exactly one of `close` and `abort`. Not thread-safe."""

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
        """About how many bytes the file would have if it were closed now."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory held by rows that are not encoded yet."""
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
    """Turns the rows of a task into files. Call `write` many times, then `close` or `abort` once."""

    def write(self, rows: pa.Table) -> None:
        """Take rows; the table may be kept until they are written."""
        ...

    def close(self) -> tuple[DataFile, ...]:
        """Write what is left and describe all files."""
        ...

    def abort(self) -> None:
        """Close what is open without finishing it; never raises. The task removes the files."""
        ...


OpenFile = Callable[[tuple[Any, ...]], ContentFile]
"""Opens a new file for a partition tuple. Called once per file, when its first rows are there."""
