"""Protocols of splits and of what reads them: `SplitScan` reads live rows, `ChangeSplitScan` changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa


class TaskSplit(Protocol):
    """What one task reads. Frozen and picklable."""

    @property
    def rows(self) -> int:
        """About how many rows there are, from metadata."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes of data files there are."""
        ...


class TaskScan(Protocol):
    """Reads splits of one kind as Arrow batches. Frozen and picklable; it needs no table and no catalog."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows, known without reading anything."""
        ...

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a split of the scan's own kind, in batches none of which is empty."""
        ...
