"""The engines' filters, which prune by our partitions and bounds, return what a filter over all rows returns.

Every table has many files (two rows each, so that bounds are tight) and is asked at values that sit on the bounds:
truncated texts and bytes, -0.0, NaN, negative decimals, times before 1970.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table
from streamlake.catalog.open import create
from streamlake.spec.expressions.expressions import (
    Expression,
    equal,
    greater_than,
    greater_than_or_equal,
    is_in,
    is_null,
    less_than,
    less_than_or_equal,
    not_equal,
    not_null,
)
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.batch_write import append
from tests.helpers.readers import Comparison, Reader, SparkReader
from tests.helpers.samples import PRIMITIVES
from tests.interop.java_tables import create_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OURS = {
    "=": equal,
    "!=": not_equal,
    "<": less_than,
    "<=": less_than_or_equal,
    ">": greater_than,
    ">=": greater_than_or_equal,
}
COLUMNS = [name for name in PRIMITIVES.table.column_names if name not in ("id", "flag")]
# The rows of one commit: neighbours in the sample, whose edge values come first.
ROWS_PER_COMMIT = 12


@dataclass(frozen=True)
class Layout:
    """How the table is cut into files."""

    partition_by: tuple[str, ...]
    metrics: str = "truncate(16)"
    file_format: str = "parquet"

    def __str__(self) -> str:
        return f"{'+'.join(self.partition_by)}-{self.metrics}-{self.file_format}"


LAYOUTS = [
    Layout(("bucket(8, id)",)),
    Layout(("bucket(8, id)",), "truncate(1)"),
    Layout(("truncate(1, name)", "bucket(2, price)", "month(day)")),
    Layout(("day(moment)", "month(at)", "truncate(2, payload)")),
    Layout(("truncate(10, price)", "amount")),
]


@dataclass(frozen=True)
class Miss:
    """An engine's filters on `column` lose rows in tables partitioned by it so, whoever wrote them: its own mistake."""

    engine: str
    column: str
    partition: str
    in_java: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}-{self.partition}"


_FLOOR = "cuts partition numbers before 1970 towards 1970, not towards the past"
_RANGE = "its conversion functions know no partition numbers before 1970"
MISSES = [
    Miss("duckdb", "moment", "day(moment)", "days(moment)", _FLOOR),
    Miss("duckdb", "at", "month(at)", "months(at)", _FLOOR),
    Miss("chdb", "moment", "day(moment)", "days(moment)", _RANGE),
    Miss("chdb", "at", "month(at)", "months(at)", _RANGE),
    Miss("chdb", "day", "month(day)", "months(day)", _RANGE),
    Miss("chdb", "payload", "truncate(2, payload)", "truncate(2, payload)", "cuts bytes as UTF-8 characters"),
    Miss("pyiceberg", "amount", "amount", "amount", "rounds partition values of type double to floats"),
]


@cache
def _written(home: Path, layout: Layout) -> Path:
    location = home / f"pruned{LAYOUTS.index(layout)}"
    schema = parse_ddl(PRIMITIVES.ddl)
    table = create(
        str(location),
        schema,
        parse_partition_by(list(layout.partition_by), schema),
        properties={
            "write.format.default": layout.file_format,
            "write.metadata.metrics.default": layout.metrics,
        },
    )
    for start in range(0, PRIMITIVES.table.num_rows, ROWS_PER_COMMIT):
        append(table, PRIMITIVES.table.slice(start, ROWS_PER_COMMIT))
    return location


def _comparisons(layout: Layout, engine: str) -> Iterator[Comparison]:
    """This layout's share of all comparisons: over all layouts each of them is asked once."""
    everything = [where for column in COLUMNS for where in _comparisons_of(column)]
    # Spark takes half a second for each: it gets a third.
    step = len(LAYOUTS) * (3 if engine == "spark" else 1)
    for where in everything[LAYOUTS.index(layout) :: step]:
        # PyIceberg takes infinity for a number beyond a float's range, and prunes all.
        beyond = where.column == "ratio" and where.value in (math.inf, -math.inf)
        if engine == "pyiceberg" and (beyond or _holds_infinity(where)):
            continue
        missed = any(
            miss.engine == engine and miss.column == where.column and miss.partition in layout.partition_by
            for miss in MISSES
        )
        if not missed or "null" in where.operator:
            yield where


def _holds_infinity(where: Comparison) -> bool:
    return where.column == "ratio" and where.operator == "in" and math.inf in where.value


def _comparisons_of(column: str) -> Iterator[Comparison]:
    values = list(dict.fromkeys(PRIMITIVES.table[column].drop_null().to_pylist()))
    chosen = [value for value in values if value == value][:9]
    for at, value in enumerate(chosen):
        yield Comparison(column, "=", value)
        yield Comparison(column, ("<", "<=", ">", ">=")[at % 4], value)
        yield Comparison(column, (">=", "<", "<=", ">")[at % 4], _near(value))
    yield Comparison(column, "!=", chosen[0])
    yield Comparison(column, "in", tuple(chosen[:5]))
    yield Comparison(column, "is null")
    yield Comparison(column, "is not null")


def _near(value: Any) -> Any:
    """A value close to `value`, which need not be in the table: a prefix of a text, the other zero, a step away."""
    if isinstance(value, str | bytes):
        return value[: min(16, len(value) - 1)] if len(value) > 1 else value
    if isinstance(value, float):
        return -value if value == 0 else value / 2
    if isinstance(value, Decimal):
        return value.copy_negate()
    if isinstance(value, datetime.datetime):
        return value + datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return value + datetime.timedelta(days=1)
    return -value - 1


def _expected(where: Comparison, nan_is_largest: bool) -> list[int]:
    """Ids of the rows that match; NaN is above all in SQL's order, or unlike anything."""
    return sorted(
        row["id"]
        for row in PRIMITIVES.table.select(["id", where.column]).to_pylist()
        if _matches(where, row[where.column], nan_is_largest)
    )


def _matches(where: Comparison, value: Any, nan_is_largest: bool) -> bool:
    if "null" in where.operator:
        return (value is None) != ("not" in where.operator)
    if value is None:
        return False
    if where.operator == "in":
        return value in where.value
    if isinstance(value, float) and math.isnan(value):
        return where.operator == "!=" or (nan_is_largest and where.operator in (">", ">="))
    other = where.value
    if isinstance(value, str):
        # By code points, as all engines sort, which is UTF-8's order.
        value, other = value.encode(), other.encode()
    return TESTS[where.operator](value, other)


def _ids(reader: Reader, location: Path, wheres: list[Comparison]) -> list[list[int]]:
    if isinstance(reader, SparkReader):
        return reader.ids_where(location, wheres)
    return [reader.read(location, ["id"], where)["id"].to_pylist() for where in wheres]


@pytest.mark.parametrize("reader", ["spark", "duckdb", "pyiceberg", "chdb"], indirect=True, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_filters_return_all_that_matches(layout: Layout, reader: Reader, interop_home: Path) -> None:
    location = _written(interop_home, layout)
    wrong = []
    wheres = list(_comparisons(layout, reader.name))
    for where, found in zip(wheres, _ids(reader, location, wheres), strict=True):
        # Upper bounds leave NaN out, so that an engine that sorts it last may lose NaN to pruning: both are right.
        certain, possible = (set(_expected(where, nan_is_largest)) for nan_is_largest in (False, True))
        if not certain <= set(found) <= possible or len(found) != len(set(found)):
            wrong.append((str(where), certain - set(found), set(found) - possible))
    assert wrong == []


@pytest.mark.parametrize(
    ("miss", "reader"),
    [pytest.param(each, each.engine, id=str(each)) for each in MISSES],
    indirect=["reader"],
)
def test_misses_are_the_engines_own(
    miss: Miss, reader: Reader, iceberg_spark: SparkSession, spark_home: Path, spark_reader: SparkReader
) -> None:
    """The engine loses rows of a table that Java wrote; Iceberg's Spark runtime finds all, and so do we."""
    table = create_java_table(iceberg_spark, spark_home, partitioned_by=(miss.in_java,))
    table.insert(PRIMITIVES.table)
    lost = 0
    wheres = [
        where for where in _comparisons_of(miss.column) if where.operator in ("=", "<", "<=", ">", ">=")
    ]
    for where in wheres:
        seen = set(reader.read(table.location, ["id"], where)["id"].to_pylist())
        ours = load_table(str(table.location)).scan(_our_filter(where), ["id"]).to_arrow()["id"].to_pylist()
        assert sorted(ours) == _expected(where, True)
        lost += bool(set(_expected(where, False)) - seen)
    assert lost
    for where, found in zip(wheres, spark_reader.ids_where(table.location, wheres), strict=True):
        assert set(_expected(where, False)) <= set(found)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_our_own_filters(layout: Layout, interop_home: Path) -> None:
    """The brute force is no engine's, but our scan's answers are the same."""
    table = load_table(str(_written(interop_home, layout)))
    for where in _comparisons(layout, "ours"):
        found = sorted(table.scan(_our_filter(where), ["id"]).to_arrow()["id"].to_pylist())
        assert found == _expected(where, True), where


def _our_filter(where: Comparison) -> Expression:
    if "null" in where.operator:
        return (not_null if "not" in where.operator else is_null)(where.column)
    if where.operator == "in":
        return is_in(where.column, where.value)
    return OURS[where.operator](where.column, where.value)
