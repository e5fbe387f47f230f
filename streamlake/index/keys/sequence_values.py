"""Sequence values of rows (the columns of `sequence_by`), in a form that compares whole columns at once.

A change whose sequence value is below the greatest one known of its key
is late. They are kept in runs next to the keys. Invariant: the encoding orders as the columns do, first
column first, so encodings of different checkpoints compare too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.index.keys.key_codec import KEY_TYPES
from streamlake.index.keys.key_columns import (
    KeyColumn,
    Rows,
    Strings,
    Words,
    binaries,
    is_word,
    joined,
    key_column,
)
from streamlake.spec.types.data_types import DoubleType, FloatType, IcebergType, NestedField

Array = np.ndarray[Any, Any]

_END = pa.scalar(b"\x00\x00", pa.large_binary())


@dataclass(frozen=True, eq=False)
class SequenceValues:
    """The sequence values of n rows: (n,) int64, or a large_binary array whose bytes order as the values do.

    Never null.
    """

    values: Array | pa.LargeBinaryArray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_numeric(self) -> bool:
        """Whether `values` is a numpy array of integers."""
        return isinstance(self.values, np.ndarray)

    def take(self, indices: Array) -> SequenceValues:
        """The sequence values at (m,) integer `indices`, which may repeat."""
        return SequenceValues(
            self.values[indices] if self.is_numeric else self.values.take(pa.array(indices))
        )

    def below(self, other: SequenceValues) -> Array:
        """(n,) bool: whether row i here is less than row i of `other`, which has n rows of the same codec."""
        if self.is_numeric:
            return self.values < other.values
        result: Array = pc.less(self.values, other.values).to_numpy(zero_copy_only=False)
        return result


def concat_sequence_values(parts: Sequence[SequenceValues]) -> SequenceValues:
    """The rows of one or more `SequenceValues` of one codec, one after the other."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts]
    return SequenceValues(np.concatenate(values) if parts[0].is_numeric else pa.concat_arrays(values))


def greatest_rows(group: Array, sequence_values: SequenceValues, count: int) -> Array:
    """(count,) int64: the row of the greatest sequence value in each group; -1 for an empty group.

    `group` is (n,) integers from 0 to count-1, one for each of n `sequence_values`.
    """
    if sequence_values.is_numeric:
        order = np.lexsort((sequence_values.values, group))
    else:
        table = pa.table({"group": group, "guard": sequence_values.values})
        order = pc.sort_indices(table, [("group", "ascending"), ("guard", "ascending")]).to_numpy()
    groups = group[order]
    last: Array = np.append(groups[1:] != groups[:-1], True) if len(groups) else np.zeros(0, dtype=bool)
    rows: Array = np.full(count, -1, dtype=np.int64)
    rows[groups[last]] = order[last]
    return rows


def compare(a: SequenceValues, b: SequenceValues) -> Array:
    """(n,) bool: whether a[i] < b[i]."""
    return a.below(b)


@dataclass(frozen=True)
class SequenceCodec:
    """Encodes the sequence columns `fields`, most significant first.

    Raises InvalidOptionError for a type without order.
    """

    fields: tuple[NestedField, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise InvalidOptionError("`sequence_by` has no column; name one or more, or leave it out")
        for part in self.fields:
            if not isinstance(part.type, KEY_TYPES):
                raise InvalidOptionError(
                    f"the column '{part.name}' of `sequence_by` has the type {part.type}, which has no "
                    "order; take a column of a primitive type, such as a version number, a log position or a "
                    "timestamp"
                )

    @property
    def is_numeric(self) -> bool:
        """Whether sequence values are int64: one column of at most 64 bits."""
        return len(self.fields) == 1 and is_word(self.fields[0].type)

    def encode(self, columns: Sequence[pa.Array | pa.ChunkedArray], where: str = "") -> SequenceValues:
        """The sequence values of n rows, from one column of n values per field in the field's Arrow type.

        Raises SchemaMismatchError for a null, naming `where` (the table), column and row.
        """
        for part, column in zip(self.fields, columns, strict=True):
            if column.null_count:
                row = column.is_null().index(True).as_py()
                place = f"{where}: " if where else ""
                raise SchemaMismatchError(
                    f"{place}column '{part.name}', row {row}: the value is null and `sequence_by` needs one "
                    "to order the changes of a key. Fill or filter such rows in the stream, or leave the "
                    "column out of `sequence_by`."
                )
        parts = [key_column(part.type, column) for part, column in zip(self.fields, columns, strict=True)]
        if self.is_numeric:
            return SequenceValues(_ordered(parts[0], self.fields[0].type).astype(np.int64))
        last = len(parts) - 1
        encoded = [
            _sortable_bytes(part, field.type, last=at == last)
            for at, (part, field) in enumerate(zip(parts, self.fields, strict=True))
        ]
        return SequenceValues(joined(*encoded))


def _ordered(part: KeyColumn, type_: IcebergType) -> Array:
    """Signed integers in the order of the values; NaN is the greatest float."""
    values = part.values
    if not isinstance(type_, (FloatType, DoubleType)):
        return values
    # The bits of negative floats increase away from zero.
    return np.where(values < 0, values ^ np.iinfo(values.dtype).max, values)


def _sortable_bytes(part: KeyColumn, type_: IcebergType, *, last: bool) -> pa.LargeBinaryArray:
    if isinstance(part, Strings):
        if last:
            return part.values
        escaped = pc.replace_substring(part.values, b"\x00", b"\x00\xff")
        return joined(escaped, _END)
    if isinstance(part, Words):
        values = _ordered(part, type_)
        rows = (
            values.astype(values.dtype.newbyteorder(">")).view(np.uint8).reshape(len(values), values.itemsize)
        )
        rows[:, 0] ^= 0x80
    elif isinstance(part, Rows) and part.decimals:
        rows = part.values[:, ::-1].copy()
        rows[:, 0] ^= 0x80
    else:
        rows = part.values
    return binaries(rows)
