"""Converts a bound filter to a pyarrow compute expression with the same meaning.

Arrow differs in three places, which are handled here. Its comparisons with NaN are false (here NaN is the
greatest value). Its `is_in` distinguishes -0.0 from 0.0. It does not compare uuids (here as their 16 bytes,
unsigned). Null handling is the same: a filter keeps a row only when it is true. A reader may use the
expression to skip row groups by their statistics, which know nothing of NaN; so every test that NaN passes
names NaN explicitly.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.read.column_selection import field_path
from streamlake.spec.expressions.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BoundPredicate,
    Expression,
    Operation,
    Or,
)
from streamlake.spec.expressions.like_pattern import regular_expression
from streamlake.spec.types.data_types import DoubleType, FloatType, UUIDType
from streamlake.spec.types.schema import Schema

_TEXT = (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH, Operation.LIKE, Operation.NOT_LIKE)


def to_arrow_filter(bound: Expression, schema: Schema) -> pc.Expression | None:
    """The filter as an expression over columns named as in `schema`; None if it keeps every row."""
    return None if isinstance(bound, AlwaysTrue) else _convert(bound, schema)


def _convert(bound: Expression, schema: Schema) -> pc.Expression:
    if isinstance(bound, (AlwaysTrue, AlwaysFalse)):
        return pc.scalar(isinstance(bound, AlwaysTrue))
    if isinstance(bound, (And, Or)):
        return _balanced([_convert(part, schema) for part in bound.operands], isinstance(bound, And))
    if isinstance(bound, BoundPredicate):
        return _predicate(bound, pc.field(*field_path(schema, bound.ref.field_id)))
    raise FeatureUnsupportedError(f"no Arrow filter for {bound!r}")


def _balanced(parts: list[pc.Expression], conjunction: bool) -> pc.Expression:
    """The expressions combined pairwise.

    Arrow evaluates recursively; this way the depth is the logarithm of the length.
    """
    combine = and_ if conjunction else or_
    while len(parts) > 2:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [reduce(combine, pair) for pair in pairs]
    return reduce(combine, parts)


def _predicate(predicate: BoundPredicate, column: pc.Expression) -> pc.Expression:
    op, type_ = predicate.op, predicate.ref.type
    if op in (Operation.IS_NULL, Operation.NOT_NULL):
        return column.is_null() if op == Operation.IS_NULL else column.is_valid()
    if op == Operation.IS_NAN:
        return pc.is_nan(column)
    if op == Operation.NOT_NAN:
        return column.is_null() | ~pc.is_nan(column)
    if op in _TEXT:
        return _text(op, column, predicate.literal)
    stored: pa.DataType = arrow_type(type_)
    if isinstance(type_, UUIDType):
        stored = pa.binary(16)
        column = column.cast(stored)
    if op.is_set:
        return _set(predicate, column, stored)
    found = _comparison(op, column, pa.scalar(_stored(predicate.literal), stored))
    nan_passes = op in (Operation.GT, Operation.GT_EQ, Operation.NOT_EQ)
    return found | pc.is_nan(column) if nan_passes and isinstance(type_, (FloatType, DoubleType)) else found


def _comparison(op: Operation, column: pc.Expression, literal: pa.Scalar) -> pc.Expression:
    if op == Operation.EQ:
        return column == literal
    if op == Operation.NOT_EQ:
        return column != literal
    if op == Operation.LT:
        return column < literal
    if op == Operation.LT_EQ:
        return column <= literal
    return column > literal if op == Operation.GT else column >= literal


def _set(predicate: BoundPredicate, column: pc.Expression, stored: pa.DataType) -> pc.Expression:
    literals = [_stored(value) for value in predicate.literals]
    floating = isinstance(predicate.ref.type, (FloatType, DoubleType))
    if floating and 0.0 in literals:
        literals += [0.0, -0.0]
    member = column.isin(pa.array(literals, stored))
    if predicate.op == Operation.IN:
        return member
    # isin is false for null and for NaN: null must be removed, NaN stays.
    absent = ~member & column.is_valid()
    return absent | pc.is_nan(column) if floating else absent


def _text(op: Operation, column: pc.Expression, literal: str) -> pc.Expression:
    if op in (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH):
        found = pc.starts_with(column, literal)
        return found if op == Operation.STARTS_WITH else ~found
    found = pc.match_substring_regex(column, rf"\A(?s:{regular_expression(literal)})\z")
    return found if op == Operation.LIKE else ~found


def _stored(value: Any) -> Any:
    return value.bytes if hasattr(value, "bytes") and hasattr(value, "urn") else value
