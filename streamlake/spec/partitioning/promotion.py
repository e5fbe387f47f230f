"""Type promotion: which types a column may get later without rewriting files (spec: Schema Evolution).

Readers cast the values of older files, so a promotion never loses a value. Invariant: stored
values that depend on the old type (partition values, default values) mean the same afterwards,
or the promotion is not allowed.
"""

from __future__ import annotations

from typing import Any

from streamlake.spec.partitioning.transforms import Day, Month, Transform, Void, Year
from streamlake.spec.types.data_types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    TimestampNsType,
    TimestampType,
    UnknownType,
)

_MICROS_PER_DAY = 24 * 3_600_000_000
_DATE_PARTS = (Year, Month, Day, Void)


def can_promote(old: IcebergType, new: IcebergType, format_version: int) -> bool:
    """Whether a column of type `old` may become one of type `new`. False when the types are equal."""
    if not (isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType)) or old == new:
        return False
    if isinstance(old, DecimalType):
        return isinstance(new, DecimalType) and new.scale == old.scale and new.precision > old.precision
    if format_version >= 3 and isinstance(old, UnknownType):
        return True
    if format_version >= 3 and isinstance(old, DateType):
        return isinstance(new, (TimestampType, TimestampNsType))
    return (isinstance(old, IntegerType) and isinstance(new, LongType)) or (
        isinstance(old, FloatType) and isinstance(new, DoubleType)
    )


def keeps_partitions(transform: Transform, old: IcebergType) -> bool:
    """Whether a partition transform has the same results after a column of type `old` was promoted."""
    return not isinstance(old, DateType) or isinstance(transform, _DATE_PARTS)


def promoted_value(value: Any, old: IcebergType, new: IcebergType) -> Any:
    """A value of type `old` (such as a default) as a value of type `new`."""
    if value is None or not isinstance(old, DateType):
        return value
    if isinstance(new, TimestampType):
        return value * _MICROS_PER_DAY
    return value * _MICROS_PER_DAY * 1000 if isinstance(new, TimestampNsType) else value
