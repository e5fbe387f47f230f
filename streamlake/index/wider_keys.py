"""Converts keys and sequence values of an index to wider column types, after a type promotion.

A promotion changes no value. But hashes and bytes depend on the type, and entries of the index are
compared by them. Used where a known index still has the older types. Invariant: the result is what
encoding the promoted values gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.keys.key_codec import SEED, KeyCodec
from streamlake.index.keys.key_columns import KeyColumn, Rows, Words, is_word, key_column
from streamlake.index.keys.key_values import key_values
from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceCodec, SequenceValues
from streamlake.spec.types.data_types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

Array = np.ndarray[Any, Any]

_DECIMAL_BYTES = 16


def can_widen_keys(old: Sequence[NestedField], new: Sequence[NestedField]) -> bool:
    """Whether keys of the fields `old` can be converted to those of `new`."""
    return len(old) == len(new) and all(
        (is_word(before.type) or isinstance(before.type, (StringType, UUIDType)))
        and (before.type == after.type or _is_wider(before.type, after.type))
        for before, after in zip(old, new, strict=True)
    )


def widened_keys(keys: Keys, old: Sequence[NestedField], new: KeyCodec) -> Keys:
    """The keys as the codec of the wider types encodes them; see `can_widen_keys`."""
    columns = key_values(old, keys, SEED)
    return new.of_parts(
        [
            _widened(column, before.type, after.type)
            for column, before, after in zip(columns, old, new.fields, strict=True)
        ]
    )


def can_widen_sequence_values(old: Sequence[NestedField], new: SequenceCodec | None) -> bool:
    """Whether sequence values of the fields `old` can be converted to those of `new`."""
    fields = () if new is None else new.fields
    if tuple(part.type for part in old) == tuple(part.type for part in fields):
        return True
    return (
        len(old) == len(fields) == 1
        and is_word(fields[0].type)
        and is_word(old[0].type)
        and _is_wider(old[0].type, fields[0].type)
    )


def widened_sequence_values(
    sequence_values: SequenceValues | None, old: Sequence[NestedField], new: SequenceCodec | None
) -> SequenceValues | None:
    """The sequence values as the codec of the wider types encodes them; see `can_widen_sequence_values`."""
    if sequence_values is None or new is None or not isinstance(old[0].type, FloatType):
        return sequence_values
    if new.fields[0].type == old[0].type:
        return sequence_values
    bits = sequence_values.values.astype(np.int32)
    floats = np.where(bits < 0, bits ^ np.iinfo(np.int32).max, bits).view(np.float32)
    return new.encode([pa.array(floats.astype(np.float64))])


def _is_wider(old: IcebergType, new: IcebergType) -> bool:
    if isinstance(old, DecimalType):
        return isinstance(new, DecimalType) and old.scale == new.scale and old.precision < new.precision
    return (isinstance(old, IntegerType) and isinstance(new, LongType)) or (
        isinstance(old, FloatType) and isinstance(new, DoubleType)
    )


def _widened(column: KeyColumn, old: IcebergType, new: IcebergType) -> KeyColumn:
    if old == new or not isinstance(column, Words):
        return column
    if isinstance(new, DecimalType):
        return column if is_word(new) else _decimal_rows(column)
    values = (
        column.values.view(np.float32).astype(np.float64) if isinstance(old, FloatType) else column.values
    )
    return key_column(
        new, pa.array(values if isinstance(old, FloatType) else values.astype(np.int64), mask=column.nulls)
    )


def _decimal_rows(column: Words) -> Rows:
    """64-bit integers as 128-bit ones."""
    rows: Array = np.empty((len(column), _DECIMAL_BYTES), dtype=np.uint8)
    rows[:, :8] = column.values.astype("<i8").view(np.uint8).reshape(-1, 8)
    rows[:, 8:] = np.where(column.values < 0, 0xFF, 0).astype(np.uint8)[:, None]
    return Rows(rows, column.nulls, decimals=True)
