"""Meaning of filters: SQL's three values, literals of other types, NaN, binding errors."""

from __future__ import annotations

import math
import pickle
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest

from streamlake.errors import InvalidOptionError
from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.expressions import (
    FALSE,
    BoundPredicate,
    Operation,
    equal,
    evaluate,
    is_in,
    negate,
    not_in,
)
from streamlake.spec.expressions.value_range import value_matches
from streamlake.spec.types.ddl import parse_ddl

SCHEMA = parse_ddl(
    "i int, l long, f float, d double, dec decimal(9,2), big decimal(38,10), day date, tm time, ts timestamp_ntz, "
    "tz timestamptz, tn timestamp_ns, s string, u uuid, fx fixed[2], bin binary, b boolean, "
    "st struct<x:int,y:struct<z:string>>, li array<int>, ma map<string,int>"
)
NAN = math.nan


def matches(filter_, **row):
    bound = bind(filter_, SCHEMA)
    return evaluate(bound, lambda predicate: value_matches(predicate, row[predicate.ref.name]))


def micros(text):
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("i = 1", 1, True),
        ("i = 1", None, False),
        ("i != 1", None, False),
        ("not i = 1", None, False),
        ("not (i = 1 or i = 2)", None, False),
        ("i not in (1, 2)", None, False),
        ("i not in (1, 2)", 3, True),
        ("i is null or i > 5", None, True),
        ("i is not null", None, False),
        ("not (i is null)", 3, True),
        # between two ints
        ("i > 1.5", 2, True),
        ("i > 1.5", 1, False),
        ("i >= 1.5", 1, False),
        ("i < 1.5", 1, True),
        ("i <= -1.5", -2, True),
        ("i <= -1.5", -1, False),
        ("i = 1.5", 1, False),
        ("i != 1.5", 1, True),
        ("i != 1.5", None, False),
        ("i = 1.0", 1, True),
        ("i = '7'", 7, True),
        # out of range
        ("i < 99999999999", 2**31 - 1, True),
        ("i > 99999999999", 2**31 - 1, False),
        ("i > -99999999999", -(2**31), True),
        ("i = 99999999999", 1, False),
        ("i != 99999999999", 1, True),
        ("i in (1, 99999999999, 2.5)", 1, True),
        ("i in (99999999999, 2.5)", 2, False),
        ("i not in (99999999999, 2.5)", 2, True),
        ("i not in (99999999999, 2.5)", None, False),
        ("i < 1e400", 5, True),
        ("i < 'NaN'", 5, True),
    ],
)
def test_integers(text, value, expected):
    assert matches(text, i=value) is expected


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("d > 5", [6.0, math.inf, NAN], [5.0, -math.inf, None]),
        ("d >= 5", [5.0, NAN], [4.0, None]),
        ("d < 5", [4.0, -math.inf], [5.0, NAN, None]),
        ("d <= 5", [5.0], [6.0, NAN, None]),
        ("d = 5", [5.0], [NAN, None]),
        ("d != 5", [4.0, NAN], [5.0, None]),
        ("not d > 5", [5.0], [6.0, NAN, None]),
        ("d = 'NaN'", [NAN], [1.0, None]),
        ("d != 'NaN'", [1.0], [NAN, None]),
        ("d > 'NaN'", [], [1.0, NAN, math.inf, None]),
        ("d >= 'NaN'", [NAN], [1.0, math.inf, None]),
        ("d < 'NaN'", [1.0, math.inf], [NAN, None]),
        ("d <= 'NaN'", [1.0, NAN], [None]),
        ("d in (1, 'NaN')", [1.0, NAN], [2.0, None]),
        ("d not in (1, 'NaN')", [2.0], [1.0, NAN, None]),
        ("d is nan", [NAN], [1.0, None]),
        ("d is not nan", [1.0, None], [NAN]),
        ("d = 0", [0.0, -0.0], [1.0]),
        ("d = -0.0", [0.0, -0.0], [1.0]),
        ("d < 0", [-1.0], [-0.0, 0.0]),
        ("d in (0, 1)", [-0.0, 0.0, 1.0], [2.0]),
        ("d > 'Infinity'", [NAN], [math.inf]),
        ("d between 1 and 2", [1.0, 2.0], [NAN, 3.0, None]),
    ],
)
def test_nan_is_the_greatest_and_zeros_are_equal(text, matching, others):
    for value in matching:
        assert matches(text, d=value), value
    for value in others:
        assert not matches(text, d=value), value


def test_float_literals_have_the_columns_width():
    narrow = float(np.float32(0.1))
    assert matches("f = 0.1", f=narrow)
    assert not matches("d = 0.1", d=narrow)
    largest = float(np.finfo(np.float32).max)
    assert not matches("f = 1e300", f=largest)
    assert matches("f < 1e300", f=largest)
    assert not matches("f < 1e300", f=math.inf)
    assert matches("f >= 1e300", f=math.inf)
    assert not matches("f >= 1e300", f=largest)
    assert matches("f > -1e300", f=-largest)
    assert not matches("f > -1e300", f=-math.inf)
    assert matches("f <= -1e300", f=-math.inf)
    assert matches("f != 1e300", f=1.0)


def test_decimals_are_exact():
    assert matches("dec = 1.50", dec=Decimal("1.5"))
    assert not matches("dec = 1.505", dec=Decimal("1.50"))
    assert matches("dec > 1.505", dec=Decimal("1.51"))
    assert not matches("dec > 1.505", dec=Decimal("1.50"))
    assert matches("dec < 1.505", dec=Decimal("1.50"))
    assert matches("dec < 99999999999", dec=Decimal("9999999.99"))
    huge = Decimal("1234567890123456789012345678.0000000001")
    assert matches("big = 1234567890123456789012345678.0000000001", big=huge)
    assert not matches("big > 1234567890123456789012345678.0000000001", big=huge)
    assert not matches("big < 1234567890123456789012345678.00000000005", big=huge)
    assert matches(equal("dec", 2), dec=Decimal("2.00"))
    assert matches(equal("dec", 0.1), dec=Decimal("0.10"))
    assert matches("dec >= 1e-1", dec=Decimal("0.10"))
    assert matches("dec < 'Infinity'", dec=Decimal(1))


def test_dates_and_times():
    leap = (date(2024, 2, 29) - date(1970, 1, 1)).days
    assert matches("day = '2024-02-29'", day=leap)
    assert matches("day = date '2024-02-29'", day=leap)
    assert matches(equal("day", date(2024, 2, 29)), day=leap)
    assert matches("day >= '2024-02-28 12:00:00'", day=leap)
    assert not matches("day > '2024-02-29 00:00:01'", day=leap)
    assert matches("day > '2024-02-28 23:59:59'", day=leap)
    assert matches("day < '1969-12-31'", day=-2)
    assert matches("tm = '22:31:08.123456'", tm=((22 * 60 + 31) * 60 + 8) * 10**6 + 123456)
    assert matches(equal("tm", time(1, 0)), tm=3_600_000_000)


def test_timestamps():
    at = micros("2024-01-31T10:00:00.000001")
    assert matches("ts = '2024-01-31T10:00:00.000001'", ts=at)
    assert matches("ts = timestamp '2024-01-31 10:00:00.000001'", ts=at)
    assert matches("ts > '2024-01-31'", ts=at)
    assert matches(equal("ts", datetime(2024, 1, 31, 10, 0, 0, 1)), ts=at)
    # nanoseconds between two microseconds
    assert matches("ts < '2024-01-31T10:00:00.000001001'", ts=at)
    assert not matches("ts = '2024-01-31T10:00:00.000001001'", ts=at)
    assert matches("tn = '2024-01-31T10:00:00.000001001'", tn=at * 1000 + 1)
    assert matches("tn = '1969-12-31T23:59:59.999999999'", tn=-1)
    # with a zone: the instant; without one, UTC
    assert matches("tz = '2024-01-31T12:00:00.000001+02:00'", tz=at)
    assert matches("tz = '2024-01-31T10:00:00.000001Z'", tz=at)
    assert matches("tz = '2024-01-31T10:00:00.000001'", tz=at)
    berlin = timezone(timedelta(hours=1))
    assert matches(equal("tz", datetime(2024, 1, 31, 11, 0, 0, 1, berlin)), tz=at)
    assert matches("ts = '9999-12-31T23:59:59.999999'", ts=micros("9999-12-31T23:59:59.999999"))


def test_other_types():
    some = uuid.uuid4()
    assert matches(f"u = '{some}'", u=some)
    assert matches(equal("u", some), u=some)
    assert matches("bin = x'00ff'", bin=b"\x00\xff")
    assert matches("bin > x'00'", bin=b"\x00\xff")
    assert matches("fx = x'00ff'", fx=b"\x00\xff")
    assert matches("b", b=True)
    assert not matches("not b", b=None)
    assert matches("b is not true", b=None)
    assert matches("s like 'a%c_'", s="aXXcd")
    assert not matches("s like 'a%c_'", s="aXXc")
    assert matches("s not like 'a%c_'", s="aXXc")
    assert not matches("s not like 'a%c_'", s=None)
    assert matches(r"s like '100\%'", s="100%")
    assert matches("s like 'a_b'", s="a\nb")
    assert matches("s like '%'", s="")
    assert not matches("s like '%'", s=None)
    assert matches("s < 'b'", s="")
    assert matches(equal("i", np.int64(3)), i=3)
    assert matches(is_in("i", np.array([1, 2])), i=2)


def test_patterns_become_the_simplest_operation():
    assert bind("s like 'abc'", SCHEMA).op == Operation.EQ
    assert bind("s not like 'abc'", SCHEMA).op == Operation.NOT_EQ
    assert bind("s like 'abc%'", SCHEMA).op == Operation.STARTS_WITH
    assert bind("s like 'abc%%'", SCHEMA).literal == "abc"
    assert bind("s like '%'", SCHEMA).op == Operation.NOT_NULL
    assert bind("s not like '%'", SCHEMA) == FALSE
    assert bind(r"s like 'a\%b%'", SCHEMA).literal == "a%b"
    assert bind("s like '%a'", SCHEMA).op == Operation.LIKE


def test_sets_are_simplified():
    assert bind("i in (1, 1, 1.0)", SCHEMA).op == Operation.EQ
    assert bind("i not in (1)", SCHEMA).op == Operation.NOT_EQ
    assert bind(is_in("i", []), SCHEMA) == FALSE
    assert matches(not_in("i", []), i=None)


def test_nested_columns():
    assert matches("st.x = 1", **{"st.x": 1})
    assert bind("st.y.z = 'a'", SCHEMA).ref.field_id == SCHEMA.find("st.y.z").field_id
    assert bind("st is null", SCHEMA).op == Operation.IS_NULL
    assert bind("li is not null", SCHEMA).op == Operation.NOT_NULL


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tss = 1", "there is no column 'tss'; did you mean 'ts'?"),
        ("TS = 1", "did you mean 'ts'?"),
        ("st.q = 1", "there is no column 'st.q'"),
        ("zzzzzzzz = 1", "the columns are i, l, f"),
        ('"some text" = s', "not with another column"),
        ("i = 'abc'", "column i is int and cannot be compared with 'abc': it is not a number"),
        ("i = true", "it is not a number"),
        ("s = 5", "it is not a string; put it in single quotes"),
        ("day = 5", "it is not a date or timestamp"),
        ("day = '2024-02-30'", "it is not a date or timestamp"),
        ("ts = '2024-01-01T00:00:00Z'", "time zone offset"),
        ("tm = '25:00:00'", "time of day"),
        ("u = 'abc'", "it is not a uuid"),
        ("bin = 'abc'", "write x'00ff'"),
        ("fx = x'00'", "it has 1 bytes, the column has 2"),
        ("b = 1", "neither true nor false"),
        ("i", "cannot be compared with True"),
        ("st = 1", "can be tested with 'is null' only"),
        ("li = 1", "can be tested with 'is null' only"),
        ("li.element = 1", "inside the list or map 'li'"),
        ("ma.value = 1", "inside the list or map 'ma'"),
        ("i is nan", "only float and double can be NaN"),
        ("i like 'a%'", "compares strings"),
        ("i starts_with 'a'", "compares strings"),
    ],
)
def test_binding_errors(text, problem):
    with pytest.raises(InvalidOptionError) as caught:
        bind(text, SCHEMA)
    assert problem in str(caught.value)


def test_null_literals_are_refused():
    with pytest.raises(InvalidOptionError, match="is null"):
        bind(equal("i", None), SCHEMA)
    with pytest.raises(InvalidOptionError, match="not int"):
        bind(5, SCHEMA)


def test_negation_is_its_own_inverse():
    bound = bind("i > 1 and (s = 'a' or d is nan) and not l in (1, 2)", SCHEMA)
    assert negate(negate(bound)) == bound


def test_bound_filters_pickle():
    bound = bind("i in (1, 2) and s like 'a%'", SCHEMA)
    again = pickle.loads(pickle.dumps(bound))
    assert again == bound
    assert isinstance(again.operands[0], BoundPredicate)
    assert again.operands[0].literal_set == {1, 2}
