"""The receipt of a commit: what the committer returns to the pipeline, and the names of its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

REJECTED_COUNTER = "rejected-records"
"""The counter of rejected records in receipts."""

OTHER_TABLE_RECORDS = "streamlake.other-table-records"
"""In a snapshot's summary: how many records were skipped because no table is configured for their source
table.
"""
OTHER_TABLES_COUNTER = "other-table-records"
"""The counter of these records in receipts."""


class Outcome(str, Enum):
    """How a checkpoint's commit ended."""

    COMMITTED = "committed"
    RECOVERED = "recovered"
    SKIPPED = "skipped"
    EMPTY = "empty"


@dataclass(frozen=True)
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
