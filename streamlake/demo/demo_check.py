"""Checks the demo's table: compares every row with what it must be, and measures what deletes cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake import clock
from streamlake.commit.marker import MAX_COMMITTED_CHECKPOINT_ID
from streamlake.tables import LoadedTable

Array = np.ndarray[Any, Any]

_SCANS = 3


@dataclass(frozen=True)
class Differences:
    """Counts of rows: missing, extra (second rows of a key among them), and with other content."""

    missing: int = 0
    extra: int = 0
    different: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different)


@dataclass(frozen=True)
class ReaderCost:
    """What a full scan has to read after a checkpoint.

    `delete_files` counts each deletion vector. `deleted_rows` are still in data files; `equality_deletes`
    would have to be compared with every row.
    """

    checkpoint: int
    data_files: int
    delete_files: int
    deleted_rows: int
    equality_deletes: int
    live_rows: int
    scan_seconds: float


def compare(found: pa.Table, expected: pa.Table, key: str) -> Differences:
    """Compare rows. `found` has the columns of `expected`, whose key is unique, not null and ascending."""
    found_keys: Array = found.column(key).to_numpy()
    keys: Array = expected.column(key).to_numpy()
    unique: tuple[Array, Array] = np.unique(found_keys, return_index=True)
    distinct, first = unique
    place: Array = np.searchsorted(keys, distinct)
    known: Array = np.zeros(len(distinct), dtype=bool)
    inside = place < len(keys)
    known[inside] = keys[place[inside]] == distinct[inside]
    left = found.select(expected.column_names).take(first[known])
    right = expected.take(place[known])
    matched = int(np.count_nonzero(known))
    return Differences(
        missing=len(keys) - matched, extra=len(found_keys) - matched, different=_different(left, right)
    )


def reader_costs(table: LoadedTable) -> list[ReaderCost]:
    """The cost after each checkpoint, oldest first: a scan of all columns, the fastest of three."""
    return [
        _cost(table, snapshot.snapshot_id, snapshot.summary)
        for snapshot in table.snapshots
        if MAX_COMMITTED_CHECKPOINT_ID in snapshot.summary
    ]


def partition_counts(rows: pa.Table, column: str) -> dict[str, int]:
    """Counts of rows by the value of a column, in the values' order."""
    counts = pc.value_counts(rows.column(column)).to_pylist()
    return dict(sorted((entry["values"], entry["counts"]) for entry in counts))


def _cost(table: LoadedTable, snapshot_id: int, summary: Mapping[str, str]) -> ReaderCost:
    seconds = []
    live = 0
    for _ in range(_SCANS):
        started = clock.monotonic()
        live = table.scan(snapshot_id=snapshot_id).to_arrow().num_rows
        seconds.append(clock.monotonic() - started)
    return ReaderCost(
        checkpoint=int(summary[MAX_COMMITTED_CHECKPOINT_ID]),
        data_files=int(summary["total-data-files"]),
        delete_files=int(summary["total-delete-files"]),
        deleted_rows=int(summary["total-position-deletes"]),
        equality_deletes=int(summary["total-equality-deletes"]),
        live_rows=live,
        scan_seconds=round(min(seconds), 4),
    )


def _different(left: pa.Table, right: pa.Table) -> int:
    """Counts rows that differ in at least one column; a null differs from a value, and equals a null."""
    same = pa.chunked_array([np.ones(left.num_rows, dtype=bool)])
    for name in right.column_names:
        one, other = left.column(name).cast(right.schema.field(name).type), right.column(name)
        equal = pc.fill_null(pc.equal(one, other), False)
        same = pc.and_(same, pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(other))))
    return int(left.num_rows - (pc.sum(same).as_py() or 0))
