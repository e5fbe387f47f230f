"""Missing fields of source records, as an Arrow column (`MISSING_FIELDS`) that travels with the rows.

Decoders make the column, the write tasks read it. It is a struct with one boolean field for each column that
some row has no value for; the field is true for these rows. Rows without missing fields are null. Invariant:
columns are identified by name, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]


def missing_fields_column(masks: Mapping[str, Array], rows: int) -> pa.StructArray:
    """The column `MISSING_FIELDS` of n rows.

    `masks` has a (n,) bool array per column with missing fields, at least one.
    """
    whole: Array = np.ones(rows, dtype=bool)
    for mask in masks.values():
        whole &= ~mask
    return pa.StructArray.from_arrays(
        [pa.array(np.asarray(mask, dtype=bool)) for mask in masks.values()],
        names=list(masks),
        mask=pa.array(whole),
    )


def missing_field_masks(column: pa.Array | pa.ChunkedArray) -> dict[str, Array]:
    """(n,) bool for each column with missing fields, from the column `MISSING_FIELDS` of n rows."""
    masks: dict[str, Array] = {}
    for part in column.type:
        mask = pc.fill_null(pc.struct_field(column, [part.name]), False).to_numpy(zero_copy_only=False)
        if mask.any():
            masks[part.name] = mask
    return masks


def common_missing_fields_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type of `MISSING_FIELDS` with the fields of all the given types."""
    return pa.struct([pa.field(name, pa.bool_()) for name in dict.fromkeys(p.name for t in types for p in t)])


def as_missing_fields_type(column: pa.StructArray, type_: pa.DataType) -> pa.StructArray:
    """The column `MISSING_FIELDS` cast to a type that `common_missing_fields_type` made."""
    if column.type.equals(type_):
        return column
    known = {part.name for part in column.type}
    arrays = [
        pc.struct_field(column, [part.name]) if part.name in known else pa.nulls(len(column), pa.bool_())
        for part in type_
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=column.is_null())
