"""The filter language: what text means, and where an error is."""

from __future__ import annotations

import uuid
from datetime import date
from decimal import Decimal

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.spec.expressions.expression_parser import parse_filter
from streamlake.spec.expressions.expressions import (
    FALSE,
    TRUE,
    And,
    Or,
    all_of,
    any_of,
    equal,
    greater_than,
    greater_than_or_equal,
    is_in,
    is_nan,
    is_null,
    less_than,
    less_than_or_equal,
    like,
    not_equal,
    not_in,
    not_nan,
    not_null,
    starts_with,
)

a_is_1 = equal("a", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", a_is_1),
        ("a == 1", a_is_1),
        ("a != 1", not_equal("a", 1)),
        ("a <> 1", not_equal("a", 1)),
        ("a < 1", less_than("a", 1)),
        ("a <= 1", less_than_or_equal("a", 1)),
        ("a > 1", greater_than("a", 1)),
        ("a >= 1", greater_than_or_equal("a", 1)),
        ("1 = a", a_is_1),
        ("1 < a", greater_than("a", 1)),
        ("1 >= a", less_than_or_equal("a", 1)),
        ("a = -1", equal("a", -1)),
        ("a = +1", a_is_1),
        ("a = 1.50", equal("a", Decimal("1.50"))),
        ("a = .5", equal("a", Decimal("0.5"))),
        ("a = -1e3", equal("a", -1000.0)),
        ("a = 'x'", equal("a", "x")),
        ("a = ''", equal("a", "")),
        ("a = 'it''s'", equal("a", "it's")),
        ("a = 'ümlaut 🚀'", equal("a", "ümlaut 🚀")),
        ("größe = 1", equal("größe", 1)),
        ("a = true", equal("a", True)),
        ("a = FALSE", equal("a", False)),
        ("a = x'00fF'", equal("a", b"\x00\xff")),
        ("a = date '2024-01-31'", equal("a", date(2024, 1, 31))),
        ("a = TIMESTAMP '2024-01-31 10:00:00'", equal("a", "2024-01-31 10:00:00")),
        ("a = decimal '1.20'", equal("a", Decimal("1.20"))),
        (
            "a = uuid 'f79c3e09-677c-4bbd-a479-3f349cb785e7'",
            equal("a", uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
        ),
        ("date = date '2024-01-31'", equal("date", date(2024, 1, 31))),
        ("timestamp > '2024-01-31'", greater_than("timestamp", "2024-01-31")),
        ("a.b.c = 1", equal("a.b.c", 1)),
        ("`a b`.c = 1", equal("a b.c", 1)),
        ("`a``b` = 1", equal("a`b", 1)),
        ('"a b" = 1', equal("a b", 1)),
        ("`and` = 1", equal("and", 1)),
        ("a in (1)", is_in("a", [1])),
        ("a IN (1, 2,3)", is_in("a", [1, 2, 3])),
        ("a not in ('x', 'y')", not_in("a", ["x", "y"])),
        ("a is null", is_null("a")),
        ("a IS NOT NULL", not_null("a")),
        ("a is nan", is_nan("a")),
        ("a is not nan", not_nan("a")),
        ("a is true", equal("a", True)),
        ("a is not true", any_of(not_equal("a", True), is_null("a"))),
        ("a between 1 and 2", greater_than_or_equal("a", 1) & less_than_or_equal("a", 2)),
        ("a not between 1 and 2", less_than("a", 1) | greater_than("a", 2)),
        ("a between 1 and 2 and b = 3", all_of(parse_filter("a between 1 and 2"), equal("b", 3))),
        ("a like 'x%'", like("a", "x%")),
        ("a not like 'x%'", ~like("a", "x%")),
        ("a starts_with 'x'", starts_with("a", "x")),
        ("a not starts_with 'x'", ~starts_with("a", "x")),
        ("starts_with(a, 'x')", starts_with("a", "x")),
        ("not starts_with(a.b, 'x')", ~starts_with("a.b", "x")),
        ("flag", equal("flag", True)),
        ("not flag and a=1", not_equal("flag", True) & a_is_1),
        ("true", TRUE),
        ("not true", FALSE),
        ("a=1and b=2", None),
        ("(a = 1)", a_is_1),
        ("a=1 and b=2 or c=3", (a_is_1 & equal("b", 2)) | equal("c", 3)),
        ("a=1 and (b=2 or c=3)", a_is_1 & (equal("b", 2) | equal("c", 3))),
        ("not (a=1 or b=2)", not_equal("a", 1) & not_equal("b", 2)),
        ("not not a=1", a_is_1),
        ("\n a\t=\n1 ", a_is_1),
    ],
)
def test_text_means(text, expected):
    if expected is None:
        with pytest.raises(InvalidOptionError):
            parse_filter(text)
    else:
        assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the filter is empty"),
        ("   ", "the filter is empty"),
        ("a", None),
        ("a =", "expected a column or a value (at the end)"),
        ("a = 1 b", "expected 'and', 'or' or the end of the filter, found 'b' (at position 7"),
        ("a = = 1", "expected a column or a value, found '=' (at position 5"),
        ("a = 'x", "no closing quote"),
        ("`a = 1", "no closing quote"),
        ("(a = 1", "expected ')' to close the parenthesis, found nothing (at the end)"),
        ("a = 1)", "found ')' (at position 6"),
        ("a in ()", "expected a column or a value, found ')' (at position 7"),
        ("a in 1", "expected '(' after 'in'"),
        ("a in (1, b)", "expected a value in the list of 'in', found the name 'b' (at position 10"),
        ("a = null", "write 'is null'"),
        ("a in (1, null)", "write 'is null'"),
        ("a = b", "not with another column"),
        ('a = "b"', "a string stands in single quotes"),
        ("1 = 2", "must be a column"),
        ("5", "a value on its own is not a condition"),
        ("a is 5", "after 'is'"),
        ("a not 5", "after 'not'"),
        ("a between 1 or 2", "expected 'and' between"),
        ("a like 5", "expected a string in single quotes after 'like'"),
        ("a ; b", "unexpected character ';' (at position 3"),
        ("a = 12abc", "'12abc' is not a number"),
        ("a = 1.2.3", "'1.2.3' is not a number"),
        ("select = 1 and in = 2", "'in' is a keyword"),
        ("upper(a) = 'X'", "there is no function 'upper'"),
        ("a = date '2024-13-01'", "is not a date"),
        ("a. = 1", "expected a field name after '.'"),
        ("(" * 200 + "a = 1" + ")" * 200, "nested"),
    ],
)
def test_errors_say_where(text, problem):
    if problem is None:
        parse_filter(text)
        return
    with pytest.raises(InvalidOptionError) as caught:
        parse_filter(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_long_chains_do_not_recurse():
    parsed = parse_filter(" or ".join(f"a = {n}" for n in range(20_000)))
    assert isinstance(parsed, Or)
    assert len(parsed.operands) == 20_000
    assert isinstance(~parsed, And)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 and (b > 'it''s' or c in (1, 2)) and d is not null",
        "a not like 'x%' or b = x'00ff'",
        "a >= 1.50",
    ],
)
def test_the_text_of_an_expression_parses_back(text):
    assert parse_filter(str(parse_filter(text))) == parse_filter(text)


def test_long_decimals_are_exact_with_either_sign():
    digits = "9999999999999999999999999999.9999999999"
    for sign in ("", "-", "+"):
        assert parse_filter(f"a = {sign}{digits}") == equal("a", Decimal(sign + digits))
