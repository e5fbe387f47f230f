"""Value ranges: what is known of a column's values in a file or manifest, and what predicates they match.

All pruning is decided here: partition summaries and data file metrics both become a `ValueRange`. Invariant:
`may_match` is false only when no value in the range can satisfy the predicate, `must_match` is true only when
every value does. Bounds that are missing, damaged or ambiguous widen the range.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from streamlake.errors import DataInvalidError
from streamlake.spec.expressions import like_pattern
from streamlake.spec.expressions.expressions import BoundPredicate, Operation
from streamlake.spec.types.data_types import (
    DoubleType,
    FloatType,
    IcebergType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    UUIDType,
)
from streamlake.spec.types.values import from_bytes

_NAN_MATCHES = (Operation.GT, Operation.GT_EQ, Operation.NOT_EQ, Operation.NOT_IN)
_ORDERED = (Operation.LT, Operation.LT_EQ, Operation.GT, Operation.GT_EQ)
_MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class ValueRange:
    """The values that a column may have.

    `lower` and `upper` bound the values that are neither null nor NaN (None: not known); they may lie outside
    of the actual extremes. The flags say which kinds of value may occur.
    """

    type: IcebergType
    lower: Any = None
    upper: Any = None
    may_be_null: bool = True
    may_be_nan: bool = True
    may_be_value: bool = True

    @property
    def only_value(self) -> Any:
        """The one value that every non-null, non-NaN entry has, or None when that is not known."""
        return self.lower if self.lower is not None and self.lower == self.upper else None

    def includes(self, value: Any) -> bool:
        """Whether the value may occur, by the bounds."""
        if isinstance(value, UUID):
            # Writers disagree on the order of uuids (unsigned bytes, or Java's signed halves), and bounds
            # hold only in the order of their writer. A value is excluded when it is outside in every order
            # that the bounds may be in.
            possible = [order for order in (_unsigned, _signed) if self._is_range(order)]
            return not possible or any(self._in_order(value, order) for order in possible)
        return (self.lower is None or self.lower <= value) and (self.upper is None or value <= self.upper)

    def _is_range(self, order: Any) -> bool:
        return self.lower is None or self.upper is None or bool(order(self.lower) <= order(self.upper))

    def _in_order(self, value: UUID, order: Any) -> bool:
        low = None if self.lower is None else order(self.lower)
        high = None if self.upper is None else order(self.upper)
        return (low is None or low <= order(value)) and (high is None or order(value) <= high)

    def includes_any(self, predicate: BoundPredicate) -> bool:
        """Whether any literal of the predicate may occur, by the bounds."""
        if isinstance(self.type, UUIDType):
            return any(self.includes(value) for value in predicate.literals)
        known = predicate.sorted_literals
        first = 0 if self.lower is None else bisect_left(known, self.lower)
        last = len(known) if self.upper is None else bisect_right(known, self.upper)
        return first < last

    def misses_prefix(self, prefix: str) -> bool:
        """True when no value in the range can start with `prefix`."""
        if self.lower is not None and self.lower[: len(prefix)] > prefix:
            return True
        return self.upper is not None and self.upper[: len(prefix)] < prefix

    def has_prefix(self, prefix: str) -> bool:
        """True when every value in the range starts with `prefix`."""
        return (
            self.lower is not None
            and self.upper is not None
            and self.lower.startswith(prefix)
            and self.upper.startswith(prefix)
        )


def _unsigned(value: UUID) -> int:
    return value.int


def _signed(value: UUID) -> tuple[int, ...]:
    return struct.unpack(">qq", value.bytes)


def decode_bound(type_: IcebergType, data: bytes | None) -> Any:
    """A bound as a value, or None when it is absent, NaN, or not valid bytes for the type."""
    if data is None:
        return None
    try:
        value = from_bytes(type_, data)
    except (DataInvalidError, ValueError, struct.error):
        return None
    if isinstance(value, float) and value != value:
        return None
    if len(data) == 4 and isinstance(type_, (TimestampType, TimestamptzType)):
        return value * _MICROS_PER_DAY  # written before the column was promoted from date
    if len(data) == 4 and isinstance(type_, (TimestampNsType, TimestamptzNsType)):
        return value * _MICROS_PER_DAY * 1000
    return value


def is_floating(type_: IcebergType) -> bool:
    """Whether the type is float or double."""
    return isinstance(type_, (FloatType, DoubleType))


def may_match(predicate: BoundPredicate, known: ValueRange) -> bool:
    """False only when the predicate is true for no value of the range."""
    op = predicate.op
    if op == Operation.IS_NULL:
        return known.may_be_null
    if op == Operation.NOT_NULL:
        return known.may_be_value or known.may_be_nan
    if op == Operation.IS_NAN:
        return known.may_be_nan
    if op == Operation.NOT_NAN:
        return known.may_be_null or known.may_be_value
    if known.may_be_nan and op in _NAN_MATCHES:
        return True
    return known.may_be_value and _value_may_match(predicate, known)


def _value_may_match(predicate: BoundPredicate, known: ValueRange) -> bool:
    op, lower, upper = predicate.op, known.lower, known.upper
    if op in _ORDERED:
        if isinstance(known.type, UUIDType):
            return True
        literal = predicate.literal
        if op == Operation.LT:
            return bool(lower is None or lower < literal)
        if op == Operation.LT_EQ:
            return bool(lower is None or lower <= literal)
        return bool(upper is None or (upper > literal if op == Operation.GT else upper >= literal))
    if op == Operation.EQ:
        return known.includes(predicate.literal)
    if op == Operation.IN:
        return known.includes_any(predicate)
    if op in (Operation.NOT_EQ, Operation.NOT_IN):
        return known.only_value is None or known.only_value not in predicate.literal_set
    if op == Operation.STARTS_WITH:
        return not known.misses_prefix(predicate.literal)
    if op == Operation.NOT_STARTS_WITH:
        return not known.has_prefix(predicate.literal)
    if op == Operation.LIKE:
        return not known.misses_prefix(like_pattern.literal_prefix(predicate.literal)[0])
    return True


def must_match(predicate: BoundPredicate, known: ValueRange) -> bool:
    """True only when the predicate is true for every value of the range."""
    op = predicate.op
    if op == Operation.IS_NULL:
        return not known.may_be_value and not known.may_be_nan
    if op == Operation.NOT_NULL:
        return not known.may_be_null
    if op == Operation.IS_NAN:
        return not known.may_be_null and not known.may_be_value
    if op == Operation.NOT_NAN:
        return not known.may_be_nan
    if known.may_be_null or (known.may_be_nan and op not in _NAN_MATCHES):
        return False
    return not known.may_be_value or _value_must_match(predicate, known)


def _value_must_match(predicate: BoundPredicate, known: ValueRange) -> bool:
    op, lower, upper = predicate.op, known.lower, known.upper
    if op in _ORDERED:
        if isinstance(known.type, UUIDType):
            return False
        literal = predicate.literal
        if op in (Operation.LT, Operation.LT_EQ):
            return upper is not None and bool(upper < literal if op == Operation.LT else upper <= literal)
        return lower is not None and bool(lower > literal if op == Operation.GT else lower >= literal)
    if op in (Operation.EQ, Operation.IN):
        return known.only_value is not None and known.only_value in predicate.literal_set
    if op in (Operation.NOT_EQ, Operation.NOT_IN):
        return lower is not None and upper is not None and not known.includes_any(predicate)
    if op == Operation.STARTS_WITH:
        return known.has_prefix(predicate.literal)
    if op == Operation.NOT_STARTS_WITH:
        return known.misses_prefix(predicate.literal)
    if op == Operation.NOT_LIKE:
        return known.misses_prefix(like_pattern.literal_prefix(predicate.literal)[0])
    return False


def value_matches(predicate: BoundPredicate, value: Any) -> bool:
    """Whether the predicate is true (not false, not null) for one value."""
    op = predicate.op
    if op.is_unary:
        nan = isinstance(value, float) and value != value
        found = value is None if op in (Operation.IS_NULL, Operation.NOT_NULL) else nan
        return found == (op in (Operation.IS_NULL, Operation.IS_NAN))
    if value is None:
        return False
    if isinstance(value, float) and value != value:
        return op in _NAN_MATCHES
    if op.is_set:
        return (value in predicate.literal_set) == (op == Operation.IN)
    return _compare(op, value, predicate.literal)


def _compare(op: Operation, value: Any, literal: Any) -> bool:
    if op == Operation.EQ:
        return bool(value == literal)
    if op == Operation.NOT_EQ:
        return bool(value != literal)
    if op == Operation.LT:
        return bool(value < literal)
    if op == Operation.LT_EQ:
        return bool(value <= literal)
    if op == Operation.GT:
        return bool(value > literal)
    if op == Operation.GT_EQ:
        return bool(value >= literal)
    if op in (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH):
        return bool(value.startswith(literal)) == (op == Operation.STARTS_WITH)
    return like_pattern.matches(literal, value) == (op == Operation.LIKE)
