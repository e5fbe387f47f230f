"""Binds a filter to a schema: names become field ids, literals become values of the column's type.

The result has no NOT and no literal that is null or NaN, so projection and the
evaluators handle a small language only.
"""

from __future__ import annotations

import difflib
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.spec.expressions.expression_parser import parse_filter
from streamlake.spec.expressions.expressions import (
    FALSE,
    TRUE,
    BoundPredicate,
    BoundReference,
    Expression,
    Operation,
    Predicate,
    all_of,
    any_of,
    rewrite,
)
from streamlake.spec.expressions.like_pattern import literal_prefix
from streamlake.spec.expressions.literals import COMPARABLE, FLOATS, LiteralMismatch, snap
from streamlake.spec.types.data_types import FixedType, IcebergType, StringType, StructType
from streamlake.spec.types.schema import Schema

_TEXT_OPERATIONS = (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH, Operation.LIKE, Operation.NOT_LIKE)


def to_expression(filter_: str | Expression | None) -> Expression:
    """A filter as users give it (text, an expression, or None for every row) as an expression.

    Raises InvalidOptionError for a syntax error and for a value of another type.
    """
    if filter_ is None:
        return TRUE
    if isinstance(filter_, str):
        return parse_filter(filter_)
    if isinstance(filter_, Expression):
        return filter_
    raise InvalidOptionError(
        f"a filter is a string or an expression, not {type(filter_).__name__}: {filter_!r}"
    )


def bind(filter_: str | Expression | None, schema: Schema) -> Expression:
    """The bound form of a filter.

    Raises InvalidOptionError for a syntax error, an unknown column, or a literal that
    does not fit the column's type.
    """
    return rewrite(to_expression(filter_), lambda leaf: _bind_leaf(leaf, schema))


def _bind_leaf(leaf: Expression, schema: Schema) -> Expression:
    if isinstance(leaf, BoundPredicate):
        return leaf
    if not isinstance(leaf, Predicate):
        raise InvalidOptionError(f"a filter cannot hold {type(leaf).__name__}: {leaf!r}")
    ref = _reference(leaf, schema)
    if leaf.op in (Operation.IS_NULL, Operation.NOT_NULL):
        return BoundPredicate(leaf.op, ref)
    if leaf.op.is_unary:
        if not isinstance(ref.type, FLOATS):
            raise InvalidOptionError(
                f"filter {leaf}: {ref.name} is {ref.type}; only float and double can be NaN"
            )
        return BoundPredicate(leaf.op, ref)
    if leaf.op in _TEXT_OPERATIONS:
        return _bind_text(leaf, ref)
    if leaf.op.is_set:
        return _bind_set(leaf, ref)
    return _bind_comparison(leaf, leaf.op, ref, leaf.literals[0])


def _reference(leaf: Predicate, schema: Schema) -> BoundReference:
    found = schema.find(leaf.name)
    if found is None:
        raise unknown_column(f"filter {leaf}", leaf.name, schema, quoted_as_name=leaf.quoted_as_name)
    parent = schema.parents.get(found.field_id)
    while parent is not None:
        container = schema.fields_by_id[parent]
        if not isinstance(container.type, StructType):
            raise InvalidOptionError(
                f"filter {leaf}: {leaf.name} is inside the {'list or map'} {schema.name_of(parent)!r}; "
                "only columns and struct fields can be filtered"
            )
        parent = schema.parents.get(parent)
    return BoundReference(found.field_id, leaf.name, found.type)


def unknown_column(
    context: str, name: str, schema: Schema, *, quoted_as_name: bool = False
) -> InvalidOptionError:
    """The error for a column name that a schema does not have, with a similar name as a suggestion."""
    names = list(schema.names_by_id.values())
    folded = {known.lower(): known for known in names}
    near = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)]
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif quoted_as_name:
        hint = "double quotes name a column; a string stands in single quotes"
    else:
        shown = ", ".join(schema.column_names[:20])
        hint = f"the columns are {shown}{', ...' if len(schema.column_names) > 20 else ''}"
    return InvalidOptionError(f"{context}: there is no column {name!r}; {hint}")


def _bind_text(leaf: Predicate, ref: BoundReference) -> Expression:
    pattern = leaf.literals[0]
    if not isinstance(ref.type, StringType) or not isinstance(pattern, str):
        raise InvalidOptionError(
            f"filter {leaf}: {leaf.op.value!r} compares strings, {ref.name} is {ref.type} and the pattern "
            f"{pattern!r}"
        )
    positive = leaf.op in (Operation.STARTS_WITH, Operation.LIKE)
    prefix, rest = pattern, "%"
    if leaf.op in (Operation.LIKE, Operation.NOT_LIKE):
        prefix, rest = literal_prefix(pattern)
    if not rest:
        return BoundPredicate(Operation.EQ if positive else Operation.NOT_EQ, ref, (prefix,))
    if rest.strip("%"):
        return BoundPredicate(leaf.op, ref, (pattern,))
    if not prefix:
        return BoundPredicate(Operation.NOT_NULL, ref) if positive else FALSE
    return BoundPredicate(Operation.STARTS_WITH if positive else Operation.NOT_STARTS_WITH, ref, (prefix,))


def _bind_set(leaf: Predicate, ref: BoundReference) -> Expression:
    """`in` is the disjunction of its equalities, `not in` the conjunction of its inequalities.

    Both are collected again.
    """
    single = Operation.EQ if leaf.op == Operation.IN else Operation.NOT_EQ
    parts = [_bind_comparison(leaf, single, ref, literal) for literal in leaf.literals]
    values = dict.fromkeys(
        part.literal for part in parts if isinstance(part, BoundPredicate) and part.op == single
    )
    others = [part for part in parts if not (isinstance(part, BoundPredicate) and part.op == single)]
    if len(values) > 1:
        others.append(BoundPredicate(leaf.op, ref, tuple(values)))
    elif values:
        others.append(BoundPredicate(single, ref, tuple(values)))
    if not leaf.literals:
        return FALSE if leaf.op == Operation.IN else TRUE
    unique = dict.fromkeys(others)
    return any_of(*unique) if leaf.op == Operation.IN else all_of(*unique)


def _bind_comparison(leaf: Predicate, op: Operation, ref: BoundReference, literal: Any) -> Expression:
    if literal is None:
        raise InvalidOptionError(f"filter {leaf}: a comparison with null is never true; use 'is null'")
    try:
        if not isinstance(ref.type, COMPARABLE):
            raise LiteralMismatch("columns of this type can be tested with 'is null' only")
        snapped, value = snap(op, literal, ref.type)
    except LiteralMismatch as mismatch:
        raise InvalidOptionError(
            f"filter {leaf}: column {ref.name} is {_type_text(ref.type)} and cannot be compared with "
            f"{literal!r}: {mismatch}"
        ) from None
    if snapped is None:
        return FALSE
    if snapped == Operation.NOT_NAN:
        return all_of(BoundPredicate(snapped, ref), BoundPredicate(Operation.NOT_NULL, ref))
    return BoundPredicate(snapped, ref, () if snapped.is_unary else (value,))


def _type_text(type_: IcebergType) -> str:
    return str(type_) if len(str(type_)) <= 60 or isinstance(type_, FixedType) else type(type_).__name__
