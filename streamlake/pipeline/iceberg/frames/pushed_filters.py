"""Filters that Spark pushes down to a batch, as expressions of a scan.

Spark checks what is not taken over. Invariant: the expression of a filter that is taken over is true for the
rows for which Spark's filter is, and for no others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.spec.expressions import expressions
from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.expressions import Expression, negate
from streamlake.spec.types.data_types import FixedType, NestedField, UUIDType
from streamlake.spec.types.schema import Schema

_COMPARED: dict[str, Callable[[str, Any], Expression]] = {
    "EqualTo": expressions.equal,
    "GreaterThan": expressions.greater_than,
    "GreaterThanOrEqual": expressions.greater_than_or_equal,
    "LessThan": expressions.less_than,
    "LessThanOrEqual": expressions.less_than_or_equal,
    "StringStartsWith": expressions.starts_with,
}


@dataclass(frozen=True)
class PushedFilters:
    """What came of filters: `expressions` for the scan, and the filters that Spark has to check (`left`)."""

    expressions: tuple[Expression, ...]
    left: tuple[Any, ...]


def pushed_filters(filters: Iterable[Any], schema: Schema) -> PushedFilters:
    """Filters of `pyspark.sql.datasource` on columns of a table, all of which a row has to pass."""
    found: list[Expression] = []
    left: list[Any] = []
    for each in filters:
        expression = _expression(each, schema)
        if expression is None:
            left.append(each)
        else:
            found.append(expression)
    return PushedFilters(tuple(found), tuple(left))


def _expression(filter_: Any, schema: Schema) -> Expression | None:
    """The expression that is true for the same rows; None where there is none."""
    # By name: PySpark has these classes from 4.1 on.
    if type(filter_).__name__ == "Not":
        # SQL's "not" of null is null, and so is that of an expression.
        inner = _expression(filter_.child, schema)
        return None if inner is None else negate(inner)
    column = _column(filter_, schema)
    if column is None:
        return None
    name = schema.names_by_id[column.field_id]
    expression = _leaf(type(filter_).__name__, name, getattr(filter_, "value", None))
    if expression is None:
        return None
    try:
        bind(expression, schema)
    except InvalidOptionError:
        return None
    return expression


def _column(filter_: Any, schema: Schema) -> NestedField | None:
    """The column of a filter, if its values are the same here as in Spark."""
    path = getattr(filter_, "attribute", ())
    # A name with a dot in it could be mistaken for a field of a struct.
    if not path or any("." in part for part in path):
        return None
    found = schema.find(".".join(path))
    # A uuid is text in Spark, in any case of letters; a fixed has one length here.
    if found is None or isinstance(found.type, UUIDType | FixedType):
        return None
    return found


def _leaf(kind: str, name: str, value: Any) -> Expression | None:
    if kind == "IsNull":
        return expressions.is_null(name)
    if kind == "IsNotNull":
        return expressions.not_null(name)
    if kind == "EqualNullSafe":
        if value is None:
            return expressions.is_null(name)
        return expressions.all_of(expressions.not_null(name), expressions.equal(name, value))
    if value is None:
        return None
    if kind == "In":
        # With a null among the values the filter is null where it is not true, and so is its opposite.
        return None if not value or any(each is None for each in value) else expressions.is_in(name, value)
    if kind in ("StringEndsWith", "StringContains"):
        pattern = "%" + re.sub(r"[%_\\]", r"\\\g<0>", str(value))
        return expressions.like(name, pattern if kind == "StringEndsWith" else f"{pattern}%")
    make = _COMPARED.get(kind)
    return None if make is None else make(name, value)
