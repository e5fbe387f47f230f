"""Row violations: which rows do not fit the table, and why.

Found in the task that knows their records, for quarantine.

It reports row by row what `row_check` and `changes` raise for the first bad row. It runs where rejects are
kept, before rows go to the writers. It costs nothing where columns have the table's types and no required
value is null. Invariant: rows without a violation pass the writers' own checks; an error of a column as a
whole is left to these checks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.sifting import SpanError, sifted
from streamlake.spec.types.data_types import NestedField, PrimitiveType
from streamlake.spec.types.schema import Schema
from streamlake.write.rows.conversion import NotConvertibleError, converted
from streamlake.write.rows.row_check import _null_part

Array = np.ndarray[Any, Any]


class ViolationCheck:
    """Checks batches of rows for a table with `schema`.

    Where rows are replaced, `key` are the columns that identify rows and `sequence_by` those that order them.
    A change that removes a row only needs these to be right (`whole_row`: all columns).
    """

    def __init__(
        self,
        schema: Schema,
        *,
        key: Collection[str] = (),
        sequence_by: Collection[str] = (),
        whole_row: bool = False,
    ) -> None:
        self._fields = schema.fields
        self._key = frozenset(key)
        self._ordering = frozenset(sequence_by)
        self._read_for_deletes = frozenset(schema.column_names) if whole_row else self._key | self._ordering

    def find(
        self,
        rows: pa.RecordBatch,
        removes: Array | None = None,
        missing: Mapping[str, Array] | None = None,
    ) -> dict[int, str]:
        """The rows that do not fit: row number -> the first reason.

        Columns that the table lacks, and those of a completely different type, are not
        checked. `removes`: (n,) bool, changes that remove a row. `missing`: for columns with
        values that records leave out, (n,) bool.
        """
        found: dict[int, str] = {}
        removes = removes if removes is not None and removes.any() else None
        missing = missing or {}
        for part in self._fields:
            if part.name not in rows.schema.names:
                continue
            looked_at = None
            if removes is not None and part.name not in self._read_for_deletes:
                looked_at = ~removes
            for row, reason in self._in_column(
                rows.column(part.name), part, looked_at, removes, missing
            ).items():
                found.setdefault(row, reason)
        return found

    def _in_column(
        self,
        column: pa.Array,
        part: NestedField,
        looked_at: Array | None,
        removes: Array | None,
        missing: Mapping[str, Array],
    ) -> dict[int, str]:
        found: dict[int, str] = {}
        target = arrow_type(part.type)
        if not (isinstance(part.type, PrimitiveType) and column.type == target):
            try:
                converted(column, part.type, part.name)
            except NotConvertibleError as error:
                if error.row is None:
                    return {}
                found = _unconvertible(column, part)
        absent = missing.get(part.name)
        if absent is not None and part.name in self._key | self._ordering:
            for row in np.flatnonzero(absent).tolist():
                found[row] = (
                    f"column '{part.name}' has no value, because the record leaves it out, and it is in the "
                    "key or in `sequence_by`"
                )
        for row, reason in self._nulls(column, part, removes, absent).items():
            found.setdefault(row, reason)
        if not isinstance(part.type, PrimitiveType):
            found.update(_null_parts(column, part, found))
        if looked_at is None:
            return found
        return {row: reason for row, reason in found.items() if looked_at[row]}

    def _nulls(
        self, column: pa.Array, part: NestedField, removes: Array | None, absent: Array | None
    ) -> dict[int, str]:
        found: dict[int, str] = {}
        if part.name in self._ordering and column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                found[row] = f"column '{part.name}': the value is null and `sequence_by` needs one"
        if part.required and column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            if removes is not None and part.name not in self._key:
                nulls = nulls & ~removes
            if absent is not None:
                nulls = nulls & ~absent
            for row in np.flatnonzero(nulls).tolist():
                found.setdefault(row, f"column '{part.name}': the value is null and the table requires one")
        return found


def _unconvertible(column: pa.Array, part: NestedField) -> dict[int, str]:
    found: dict[int, str] = {}

    def attempt(low: int, high: int) -> None:
        try:
            converted(column.slice(low, high - low), part.type, part.name)
        except NotConvertibleError as error:
            if error.row is None:
                raise
            raise SpanError(error.row, f"column '{error.path}' {error.message}") from error

    sifted(len(column), attempt, found.__setitem__)
    return found


def _null_parts(column: pa.Array, part: NestedField, wrong: Collection[int]) -> dict[int, str]:
    """Rows, without the `wrong` ones, that have a null where the table requires a part of a value."""
    found: dict[int, str] = {}
    rows: Array = np.setdiff1d(np.arange(len(column)), np.fromiter(wrong, dtype=np.int64))
    values = converted(column.take(pa.array(rows, pa.int64())), part.type, part.name)
    # Each pass finds all rows of one required part.
    while len(rows):
        nested = _null_part(values, part.type, part.name)
        if nested is None:
            break
        bad = nested[1].fill_null(False).to_numpy(zero_copy_only=False)
        for row in rows[bad].tolist():
            found[row] = f"column '{nested[0]}': the value is null and the table requires one"
        rows, values = rows[~bad], values.filter(pa.array(~bad))
    return found
