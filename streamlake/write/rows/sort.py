"""Sorts rows by the table's sort order (spec: Sorting), a whole table at a time.

Each sort field becomes one or two key columns that Arrow sorts ascending or descending: a null flag
where nulls occur, and the transformed values, floats as integers of the same order (-NaN <
-Infinity < ... < -0 < 0 < ... < NaN).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.arrow_transforms import plain_array, transform_array
from streamlake.spec.partitioning.sort_order import SortOrder
from streamlake.spec.types.schema import Schema
from streamlake.write.rows.columns import SourceColumn


class RowSorter:
    """Sorts tables of the table's schema by a sort order. Rows that are equal in it keep their order."""

    def __init__(self, schema: Schema, sort_order: SortOrder) -> None:
        self._order = sort_order
        self._sources = [
            SourceColumn(schema, part.source_id, f"sort order {sort_order.order_id}")
            for part in sort_order.fields
        ]

    def sort(self, rows: pa.Table) -> pa.Table:
        """The rows in order; the same table, without a copy, when they are already in order."""
        if rows.num_rows < 2:
            return rows
        order = self.order(rows)
        values = order.to_numpy()
        if bool((values[1:] > values[:-1]).all()):
            return rows
        return rows.take(order)

    def in_order(self, last: pa.Table, following: pa.Table) -> bool:
        """Whether the one row of `following` may come after the one row of `last`."""
        return bool(self.order(pa.concat_tables([last, following]))[0].as_py() == 0)

    def order(self, rows: pa.Table) -> pa.Array:
        """The row numbers of `rows`, unsigned, in the order of the rows; equal rows keep theirs."""
        keys: dict[str, pa.Array] = {}
        directions: list[tuple[str, str]] = []
        for at, (part, source) in enumerate(zip(self._order.fields, self._sources, strict=True)):
            column = source.of(rows).combine_chunks()
            values = plain_array(transform_array(part.transform, column, source.type))
            if values.null_count == len(values):
                continue
            if values.null_count:
                keys[f"null_{at}"] = values.is_null().cast(pa.uint8())
                directions.append(
                    (f"null_{at}", "descending" if part.null_order == "nulls-first" else "ascending")
                )
            keys[f"value_{at}"] = _sortable(values)
            directions.append((f"value_{at}", "ascending" if part.direction == "asc" else "descending"))
        if not keys:
            return pa.array(np.arange(rows.num_rows, dtype=np.uint64))
        # Arrow's sort by one key is stable only with a second one: the row number.
        keys["row"] = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        return pc.sort_indices(pa.table(keys), sort_keys=[*directions, ("row", "ascending")])


def _sortable(values: pa.Array) -> pa.Array:
    """Values that Arrow orders as the specification does."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8())
    if not pa.types.is_floating(values.type):
        return values
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    bits = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
    return pa.array(bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)), mask=mask)
