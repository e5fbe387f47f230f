"""Checks the key index of a branch against its live rows: each key must lead to its row, and to no dead one.

It reads the key columns of all data files that the index covers, batch by batch, in this process. Invariant:
an update would leave a row that no lookup finds beside its new version, so there must be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.run import open_run
from streamlake.operate.doctor.index_status import IndexStatus
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.table.table import Table

Array = np.ndarray[Any, Any]
Example = dict[str, Any]

MISSING = "missing"
ELSEWHERE = "wrong position"
_POSITION = "_pos"
_POSITION_BITS = 40


@dataclass
class IndexCheck:
    """Counts of rows.

    `rows` are live and ought to be found. `missing` ones have a key that the index does not know; the keys of
    `misplaced` ones only lead elsewhere. `dead` are positions that the index still knows and that hold no
    live row; they cost something and do no harm. `examples` are of missing and misplaced rows.
    """

    rows: int = 0
    missing: int = 0
    misplaced: int = 0
    dead: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every live row is found."""
        return not (self.missing or self.misplaced)


def check_index(table: Table, status: IndexStatus, examples: int = 5) -> IndexCheck:
    """Compare the index with the live rows of the files that it covers.

    Raises IndexDamagedError for a run that is missing or damaged.
    """
    result = IndexCheck()
    state = status.state
    if state is None:
        return result
    key = status.key
    files = {task.data_file.file_path: number for number, task in enumerate(status.files_below)}
    buckets = [
        KeyIndex([open_run(table.io, ref) for ref in state.runs_of(bucket)], files)
        for bucket in range(state.buckets)
    ]
    found = 0
    bucketing = state.bucketing
    reader = IndexedRows.of(table, key, bucketing).reader((*key.columns, _POSITION))
    for task in status.files_below:
        for batch in reader.read(task):
            keys = key.codec.encode([batch.column(name) for name in key.columns])
            positions = batch.column(_POSITION).to_numpy(zero_copy_only=False)
            bucket = bucketing.of_keys(keys, key.codec)
            result.rows += batch.num_rows
            for number in np.unique(bucket).tolist():
                rows = np.flatnonzero(bucket == number)
                hits = buckets[number].lookup(keys.take(rows))
                right = _matched(hits, task.data_file.file_path, positions[rows])
                found += int(right.sum())
                result.missing += int((~right & ~hits.exists).sum())
                result.misplaced += int((~right & hits.exists).sum())
                for at in np.flatnonzero(~right)[: examples - len(result.examples)].tolist():
                    result.examples.append(
                        {
                            "problem": ELSEWHERE if hits.exists[at] else MISSING,
                            "key": _values(batch, key.columns, int(rows[at])),
                            "file": task.data_file.file_path,
                            "position": int(positions[rows[at]]),
                            "index_says": _places(hits, at),
                        }
                    )
    result.dead = sum(_places_known(index, files) for index in buckets) - found
    return result


def _matched(hits: Any, path: str, positions: Array) -> Array:
    """(n,) bool: which of n keys lead to their position in the file."""
    right: Array = np.zeros(len(positions), dtype=bool)
    if path in hits.paths:
        here = (hits.file == hits.paths.index(path)) & (hits.positions == positions[hits.query])
        right[hits.query[here]] = True
    return right


def _places_known(index: KeyIndex, files: dict[str, int]) -> int:
    """How many different positions in these files the index knows for all keys of a bucket."""
    known: list[Array] = []
    for run in index.runs:
        for entries in run.entries():  # type: ignore[union-attr]
            hits = index.lookup(entries.keys)
            number: Array = np.array([files[path] for path in hits.paths], dtype=np.int64)
            if len(hits):
                known.append(np.unique((number[hits.file] << _POSITION_BITS) | hits.positions))
    return len(np.unique(np.concatenate(known))) if known else 0


def _values(batch: pa.RecordBatch, columns: Sequence[str], row: int) -> Example:
    return {name: batch.column(name)[row].as_py() for name in columns}


def _places(hits: Any, query: int) -> list[str]:
    return [
        f"{hits.paths[hits.file[at]]}:{hits.positions[at]}" for at in np.flatnonzero(hits.query == query)[:3]
    ]
