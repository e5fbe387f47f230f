"""The receipt of a commit: what the committer returns to the pipeline, and the names of its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamlake.wording import counted

REJECTED_COUNTER = "rejected-records"
"""The counter of rejected records in receipts."""

OTHER_TABLE_RECORDS = "streamlake.other-table-records"
"""In a snapshot's summary: how many records were skipped because no table is configured for their source
table.
"""
OTHER_TABLES_COUNTER = "other-table-records"
"""The counter of these records in receipts."""

TOMBSTONES = "streamlake.tombstones"
"""In a snapshot's summary: how many records without a value were left out."""
TOMBSTONES_COUNTER = "tombstones"
"""The counter of these records in receipts."""


class Outcome(str, Enum):
    """How a checkpoint's commit ended."""

    COMMITTED = "committed"
    RECOVERED = "recovered"
    SKIPPED = "skipped"
    EMPTY = "empty"


@dataclass(frozen=True, repr=False)
class CommitReceipt:
    """The outcome of one checkpoint.

    Times are in milliseconds. `snapshot_id` is None when there was nothing to commit, or when the snapshot
    that holds the checkpoint has expired. `counters` are the checkpoint's own, by name. `table` is given
    where a query writes several.
    """

    job_id: str
    checkpoint_id: int
    outcome: Outcome
    snapshot_id: int | None
    rows: int = 0
    data_files: int = 0
    bytes: int = 0
    write_ms: int = 0
    commit_ms: int = 0
    delete_files: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    table: str | None = None

    def __repr__(self) -> str:
        """The outcome, and what is not zero."""
        parts = [f"checkpoint {self.checkpoint_id}: {self.outcome.value}"]
        if self.table is not None:
            parts.append(f"table {self.table}")
        numbers = (("row", self.rows), ("data file", self.data_files), ("delete file", self.delete_files))
        parts += [counted(count, thing) for thing, count in numbers if count]
        parts += [f"{name} {count:,}" for name, count in self.counters.items() if count]
        if self.snapshot_id is not None:
            parts.append(f"snapshot {self.snapshot_id}")
        times = (("write", self.write_ms), ("commit", self.commit_ms))
        parts += [f"{name} {ms:,} ms" for name, ms in times if ms]
        return f"CommitReceipt({', '.join(parts)})"
