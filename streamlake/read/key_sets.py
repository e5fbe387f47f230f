"""A set of keys over one or more columns, asked for whole batches at a time.

Each column's values are numbered against the set's own distinct values and the numbers combined into one integer per
row. Unlike in a join, null equals null, as equality deletes want it (spec: Equality Delete Files).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MISSING = -1

Codes = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class KeySet:
    """The distinct keys of `rows` at the column paths `paths`."""

    def __init__(self, paths: Sequence[tuple[str, ...]], rows: Sequence[pa.RecordBatch]) -> None:
        self._paths = list(paths)
        table = pa.Table.from_batches(rows) if rows else None
        self._values: list[pa.Array] = []
        self._steps: list[Codes] = []
        self._keys: Codes = np.empty(0, dtype=np.int64)
        if table is None or not table.num_rows:
            return
        combined = np.zeros(table.num_rows, dtype=np.int64)
        for path in self._paths:
            column = _at(table, path)
            values = column.unique()
            self._values.append(values)
            # Numbered anew after every column, so that the product of two counts stays far below the limit.
            raw = combined * len(values) + _codes(column, values)
            step, combined = np.unique(raw, return_inverse=True)
            self._steps.append(step)
            combined = combined.astype(np.int64).reshape(-1)
        self._keys = np.unique(combined)

    def contains(self, batch: pa.RecordBatch) -> Flags:
        """For each row, whether its key is in the set."""
        found: Flags = np.full(batch.num_rows, bool(len(self._keys)))
        if not len(self._keys):
            return found
        combined = np.zeros(batch.num_rows, dtype=np.int64)
        for path, values, step in zip(self._paths, self._values, self._steps, strict=True):
            codes = _codes(_at(batch, path), values)
            found &= codes != _MISSING
            raw = combined * len(values) + codes
            at = np.minimum(np.searchsorted(step, raw), len(step) - 1)
            found &= step[at] == raw
            combined = at.astype(np.int64)
        return found


def _at(rows: pa.Table | pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | pa.ChunkedArray:
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    return column


def _codes(column: pa.Array | pa.ChunkedArray, values: pa.Array) -> Codes:
    """The place of each value among `values` (null included), or -1."""
    found = pc.index_in(column, value_set=values)
    codes: Codes = (
        pc.fill_null(found, _MISSING).to_numpy(zero_copy_only=False)
        if isinstance(found, pa.Array)
        else pc.fill_null(found, _MISSING).to_numpy()
    )
    return codes.astype(np.int64)
