"""Numbers rows by their values: two rows get the same code exactly when their columns are equal.

Codes come from Arrow's dictionaries, column by column, and never from hashes. Null equals null and NaN equals
NaN. As keys, -0.0 equals 0.0; as values they differ. Hashes only say which part of the rows one belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.arrow_transforms import plain_array
from streamlake.formats.arrow.row_bytes import encode_rows
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.spec.types.data_types import (
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    PrimitiveType,
)

Array = Any  # numpy arrays; numpy's type stubs are not required


def row_codes(columns: Sequence[pa.Array], types: Sequence[IcebergType], *, as_key: bool) -> Array:
    """(n,) int64: the codes of n rows, from one array of n values per column. They are below n.

    Raises FeatureUnsupportedError for a type whose values cannot be compared.
    """
    found: Array | None = None
    for column, type_ in zip(columns, types, strict=True):
        codes = _dense(_comparable(column, type_, as_key=as_key))
        if found is None:
            found = codes
        elif len(codes):
            # Both are below the number of rows, so that the product fits.
            found = _dense(pa.array(found * (int(codes.max()) + 1) + codes))
    if found is None:
        raise ValueError("rows are compared by at least one column")
    return found


def equal_rows(columns: Sequence[pa.Array], types: Sequence[IcebergType], left: Array, right: Array) -> Array:
    """(n,) bool: whether the rows left[i] and right[i] have the same values in all columns.

    Each further column is looked at only for pairs that are equal so far.
    """
    same: Array = np.arange(len(left))
    for column, type_ in zip(columns, types, strict=True):
        if not len(same):
            break
        ours, theirs = (column.take(pa.array(rows[same])) for rows in (left, right))
        same = same[_equal(ours, theirs, type_)]
    found: Array = np.zeros(len(left), dtype=bool)
    found[same] = True
    return found


def row_parts(columns: Sequence[pa.Array], fields: Sequence[NestedField], parts: int) -> Array:
    """(n,) int64: the part, below `parts`, that each row belongs to; equal rows belong to the same one.

    The fields are of KEY_TYPES, and there is at least one.
    """
    hashes = KeyCodec(tuple(fields)).encode(columns).hashes
    found: Array = (hashes.view(np.uint64) % np.uint64(parts)).astype(np.int64)
    return found


def _equal(left: pa.Array, right: pa.Array, type_: IcebergType) -> Array:
    left, right = (_comparable(each, type_, as_key=False) for each in (left, right))
    equal = pc.fill_null(pc.equal(left, right), False)
    if left.null_count and right.null_count:
        equal = pc.or_(equal, pc.and_(left.is_null(), right.is_null()))
    return equal.to_numpy(zero_copy_only=False)


def _comparable(column: pa.Array, type_: IcebergType, *, as_key: bool) -> pa.Array:
    """The column in a form in which Arrow's own equality is that of the values."""
    if isinstance(type_, PrimitiveType) and not isinstance(type_, DoubleType | FloatType):
        plain = plain_array(column)
        if _has_equality(plain.type):
            return plain
    return encode_rows([column], [type_], as_key=as_key)


def _has_equality(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_temporal(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_null(type_)
    )


def _dense(column: pa.Array) -> Array:
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
