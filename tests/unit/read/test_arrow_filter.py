"""The Arrow form of a filter keeps the same rows as the filter itself, for every type."""

from __future__ import annotations

import math
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.formats.arrow.arrow_schema import arrow_type, schema_to_arrow
from streamlake.read.arrow_filter import to_arrow_filter
from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.expressions import evaluate
from streamlake.spec.expressions.value_range import value_matches
from streamlake.spec.types.data_types import NestedField
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from tests.unit.spec.expressions.test_expressions_pruning import VALUES, predicates_of


def in_arrow(type_, values):
    """Values of the spec's domain as an Arrow array."""
    target = arrow_type(type_)
    plain = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
    if pa.types.is_date32(target):
        return pa.array(plain, pa.int32()).view(target)
    if pa.types.is_temporal(target):
        return pa.array(plain, pa.int64()).view(target)
    return pa.array(plain, target)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_same_rows_as_the_filter(data):
    type_ = data.draw(st.sampled_from(list(VALUES)))
    rows = data.draw(st.lists(st.none() | VALUES[type_], min_size=1, max_size=6))
    first = data.draw(predicates_of(type_, rows))
    second = data.draw(predicates_of(type_, rows))
    bound = data.draw(st.sampled_from([first, first & second, first | second]))
    schema = Schema((NestedField(1, "c", type_),))
    table = pa.table({"c": in_arrow(type_, rows), "at": pa.array(range(len(rows)))})
    expected = [
        at for at, row in enumerate(rows) if evaluate(bound, lambda leaf, row=row: value_matches(leaf, row))
    ]
    assert table.filter(to_arrow_filter(bound, schema))["at"].to_pylist() == expected


SCHEMA = parse_ddl(
    "id int, d double, st struct<x:int,y:struct<z:string>>, `a.b` int, li array<int>, name string"
)


def kept(text, rows):
    table = pa.Table.from_pylist(rows, schema=schema_to_arrow(SCHEMA))
    condition = to_arrow_filter(bind(text, SCHEMA), SCHEMA)
    return (table if condition is None else table.filter(condition))["id"].to_pylist()


def test_nested_and_odd_names():
    rows = [
        {"id": 1, "st": {"x": 1, "y": {"z": "a"}}, "a.b": 1, "li": [1]},
        {"id": 2, "st": {"x": None, "y": None}, "a.b": None, "li": None},
        {"id": 3, "st": None, "a.b": 3, "li": []},
    ]
    assert kept("st.x = 1", rows) == [1]
    assert kept("st.x is null", rows) == [2, 3]
    assert kept("st.y.z = 'a'", rows) == [1]
    assert kept("st.y.z is null", rows) == [2, 3]
    assert kept("st is null", rows) == [3]
    assert kept("st.y is not null", rows) == [1]
    assert kept("`a.b` > 1", rows) == [3]
    assert kept("li is null", rows) == [2]


def test_constant_filters():
    rows = [{"id": 1}, {"id": 2}]
    assert kept("true", rows) == [1, 2]
    assert kept("id = 1.5", rows) == []
    assert kept("id = 1.5 or id = 2", rows) == [2]


def test_nan_and_zero():
    rows = [{"id": at, "d": value} for at, value in enumerate([1.0, math.nan, None, -0.0, 0.0, math.inf])]
    assert kept("d > 0.5", rows) == [0, 1, 5]
    assert kept("d != 1", rows) == [1, 3, 4, 5]
    assert kept("d not in (0, 1)", rows) == [1, 5]
    assert kept("d in (0, 1)", rows) == [0, 3, 4]
    assert kept("d is not nan", rows) == [0, 2, 3, 4, 5]
    assert kept("d <= 'NaN'", rows) == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("count", [1_000])
def test_long_chains(count):
    rows = [{"id": n} for n in range(3)]
    assert kept(" or ".join(f"(id = {n} and name is null)" for n in range(1, count)), rows) == [1, 2]


def test_decimal_literals_of_the_full_precision():
    schema = parse_ddl("c decimal(38, 0)")
    value = Decimal(10**38 - 1)
    table = pa.table({"c": pa.array([value, None], pa.decimal128(38, 0))})
    assert table.filter(to_arrow_filter(bind(f"c = {value}", schema), schema)).num_rows == 1
