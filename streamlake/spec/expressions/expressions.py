"""Row filters as values: the conditions of a scan, an overwrite or a delete (spec: Scan Planning).

`expression_parser` makes them from text, `binding` binds them to a schema, `projection` and the evaluators
turn them into tests of partitions and files. The meaning is that of SQL: a comparison with null is neither
true nor false, and a row is returned only when the whole filter is true, so `a != 5` and `not (a = 5)`
both leave out rows where `a` is null. `is null`, `is nan` and their opposites are always true or false
(null is not NaN). Floating point values are ordered as in Spark: NaN equals NaN and is greater than every
other value, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from streamlake.spec.types.data_types import IcebergType


class Operation(Enum):
    """The operation of a predicate; the value is the operator in the filter language."""

    IS_NULL = "is null"
    NOT_NULL = "is not null"
    IS_NAN = "is nan"
    NOT_NAN = "is not nan"
    LT = "<"
    LT_EQ = "<="
    GT = ">"
    GT_EQ = ">="
    EQ = "="
    NOT_EQ = "!="
    IN = "in"
    NOT_IN = "not in"
    STARTS_WITH = "starts_with"
    NOT_STARTS_WITH = "not starts_with"
    LIKE = "like"
    NOT_LIKE = "not like"

    @property
    def negated(self) -> Operation:
        """The operation that is true exactly where this one is false (and null where it is null)."""
        return _NEGATED[self]

    @property
    def is_unary(self) -> bool:
        """Whether the operation has no literal."""
        return self in _UNARY

    @property
    def is_set(self) -> bool:
        """Whether the operation has a set of literals (`in`, `not in`)."""
        return self in (Operation.IN, Operation.NOT_IN)


_PAIRS = [
    (Operation.IS_NULL, Operation.NOT_NULL),
    (Operation.IS_NAN, Operation.NOT_NAN),
    (Operation.LT, Operation.GT_EQ),
    (Operation.LT_EQ, Operation.GT),
    (Operation.EQ, Operation.NOT_EQ),
    (Operation.IN, Operation.NOT_IN),
    (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH),
    (Operation.LIKE, Operation.NOT_LIKE),
]
_NEGATED = dict(_PAIRS) | {right: left for left, right in _PAIRS}
_UNARY = frozenset({Operation.IS_NULL, Operation.NOT_NULL, Operation.IS_NAN, Operation.NOT_NAN})


class Expression:
    """A filter. `&`, `|` and `~` combine filters."""

    def __and__(self, other: Expression) -> Expression:
        return all_of(self, other)

    def __or__(self, other: Expression) -> Expression:
        return any_of(self, other)

    def __invert__(self) -> Expression:
        return negate(self)


@dataclass(frozen=True)
class AlwaysTrue(Expression):
    """The filter that every row matches; use `TRUE`."""

    def __str__(self) -> str:
        return "true"


@dataclass(frozen=True)
class AlwaysFalse(Expression):
    """The filter that no row matches; use `FALSE`."""

    def __str__(self) -> str:
        return "false"


TRUE = AlwaysTrue()
FALSE = AlwaysFalse()


@dataclass(frozen=True)
class And(Expression):
    """All of `operands` (two or more, none of them an And); made by `all_of`."""

    operands: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.operands)


@dataclass(frozen=True)
class Or(Expression):
    """Any of `operands` (two or more, none of them an Or); made by `any_of`."""

    operands: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(str(part) for part in self.operands)


@dataclass(frozen=True)
class Predicate(Expression):
    """One operation on a column by dotted name, before it is bound. `literals` are plain Python values.

    `quoted_as_name` records that the name was in double quotes, for a better
    error when no such column exists.
    """

    op: Operation
    name: str
    literals: tuple[Any, ...] = ()
    quoted_as_name: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return _predicate_text(self.op, self.name, self.literals)


@dataclass(frozen=True)
class BoundReference:
    """The value that a bound predicate tests: a column (by field id), or a partition field (by position)."""

    field_id: int
    name: str
    type: IcebergType
    position: int | None = None


@dataclass(frozen=True)
class BoundPredicate(Expression):
    """A predicate bound to a column.

    `literals` are in the value domain of the column's type, never null or NaN.
    """

    op: Operation
    ref: BoundReference
    literals: tuple[Any, ...] = ()

    @property
    def literal(self) -> Any:
        """The first literal, the only one of a comparison."""
        return self.literals[0]

    @cached_property
    def literal_set(self) -> frozenset[Any]:
        """The literals as a set."""
        return frozenset(self.literals)

    @cached_property
    def sorted_literals(self) -> tuple[Any, ...]:
        """The literals in ascending order."""
        return tuple(sorted(self.literals))

    def __str__(self) -> str:
        return _predicate_text(self.op, self.ref.name, self.literals)


def _predicate_text(op: Operation, name: str, literals: tuple[Any, ...]) -> str:
    if op.is_unary:
        return f"{name} {op.value}"
    if op.is_set:
        shown = ", ".join(_literal_text(value) for value in literals[:10])
        return f"{name} {op.value} ({shown}{', ...' if len(literals) > 10 else ''})"
    return f"{name} {op.value} {_literal_text(literals[0])}"


def _literal_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, bytearray)):
        return f"x'{bytes(value).hex()}'"
    if isinstance(value, (int, float)) or type(value).__name__ == "Decimal":
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def all_of(*operands: Expression) -> Expression:
    """The conjunction, flattened: TRUE without operands, FALSE when an operand is FALSE."""
    parts = list(_flatten(operands, And))
    if FALSE in parts:
        return FALSE
    parts = [part for part in parts if part != TRUE]
    return And(tuple(parts)) if len(parts) > 1 else (parts[0] if parts else TRUE)


def any_of(*operands: Expression) -> Expression:
    """The disjunction, flattened: FALSE without operands, TRUE when an operand is TRUE."""
    parts = list(_flatten(operands, Or))
    if TRUE in parts:
        return TRUE
    parts = [part for part in parts if part != FALSE]
    return Or(tuple(parts)) if len(parts) > 1 else (parts[0] if parts else FALSE)


def _flatten(operands: Iterable[Expression], kind: type[And] | type[Or]) -> Iterable[Expression]:
    for part in operands:
        if isinstance(part, kind):
            yield from part.operands
        else:
            yield part


def negate(expression: Expression) -> Expression:
    """NOT, applied to the predicates.

    It is exact in three-valued logic because every operation has a negation.
    """
    if isinstance(expression, And):
        return any_of(*(negate(part) for part in expression.operands))
    if isinstance(expression, Or):
        return all_of(*(negate(part) for part in expression.operands))
    if isinstance(expression, Predicate):
        return Predicate(
            expression.op.negated, expression.name, expression.literals, expression.quoted_as_name
        )
    if isinstance(expression, BoundPredicate):
        return BoundPredicate(expression.op.negated, expression.ref, expression.literals)
    if isinstance(expression, AlwaysTrue):
        return FALSE
    if isinstance(expression, AlwaysFalse):
        return TRUE
    raise TypeError(f"not an expression: {expression!r}")


def rewrite(expression: Expression, leaf: Callable[[Any], Expression]) -> Expression:
    """The expression with every predicate replaced by `leaf(predicate)`."""
    if isinstance(expression, And):
        return all_of(*(rewrite(part, leaf) for part in expression.operands))
    if isinstance(expression, Or):
        return any_of(*(rewrite(part, leaf) for part in expression.operands))
    if isinstance(expression, (AlwaysTrue, AlwaysFalse)):
        return expression
    return leaf(expression)


def evaluate(expression: Expression, test: Callable[[BoundPredicate], bool]) -> bool:
    """Whether a bound expression is true; `test` says whether each predicate is."""
    if isinstance(expression, And):
        return all(evaluate(part, test) for part in expression.operands)
    if isinstance(expression, Or):
        return any(evaluate(part, test) for part in expression.operands)
    if isinstance(expression, BoundPredicate):
        return test(expression)
    if isinstance(expression, (AlwaysTrue, AlwaysFalse)):
        return isinstance(expression, AlwaysTrue)
    raise TypeError(f"not a bound expression: {expression!r}")


def predicates(expression: Expression) -> Iterable[Any]:
    """Every predicate of the expression, from left to right."""
    if isinstance(expression, (And, Or)):
        for part in expression.operands:
            yield from predicates(part)
    elif not isinstance(expression, (AlwaysTrue, AlwaysFalse)):
        yield expression


def is_null(name: str) -> Expression:
    """The filter `name is null`."""
    return Predicate(Operation.IS_NULL, name)


def not_null(name: str) -> Expression:
    """The filter `name is not null`."""
    return Predicate(Operation.NOT_NULL, name)


def is_nan(name: str) -> Expression:
    """The filter `name is nan`, for float and double columns."""
    return Predicate(Operation.IS_NAN, name)


def not_nan(name: str) -> Expression:
    """The filter `name is not nan`, for float and double columns."""
    return Predicate(Operation.NOT_NAN, name)


def equal(name: str, value: Any) -> Expression:
    """The filter `name = value`."""
    return Predicate(Operation.EQ, name, (value,))


def not_equal(name: str, value: Any) -> Expression:
    """The filter `name != value`."""
    return Predicate(Operation.NOT_EQ, name, (value,))


def less_than(name: str, value: Any) -> Expression:
    """The filter `name < value`."""
    return Predicate(Operation.LT, name, (value,))


def less_than_or_equal(name: str, value: Any) -> Expression:
    """The filter `name <= value`."""
    return Predicate(Operation.LT_EQ, name, (value,))


def greater_than(name: str, value: Any) -> Expression:
    """The filter `name > value`."""
    return Predicate(Operation.GT, name, (value,))


def greater_than_or_equal(name: str, value: Any) -> Expression:
    """The filter `name >= value`."""
    return Predicate(Operation.GT_EQ, name, (value,))


def is_in(name: str, values: Iterable[Any]) -> Expression:
    """The filter `name in (values)`."""
    return Predicate(Operation.IN, name, tuple(values))


def not_in(name: str, values: Iterable[Any]) -> Expression:
    """The filter `name not in (values)`."""
    return Predicate(Operation.NOT_IN, name, tuple(values))


def starts_with(name: str, prefix: str) -> Expression:
    """The filter `name starts_with prefix`, for string columns."""
    return Predicate(Operation.STARTS_WITH, name, (prefix,))


def like(name: str, pattern: str) -> Expression:
    """The filter `name like pattern`, for string columns; `%` matches any text, `_` one character."""
    return Predicate(Operation.LIKE, name, (pattern,))
