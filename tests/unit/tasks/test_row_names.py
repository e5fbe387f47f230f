"""Which table a row names, by its fields or by a function."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake.errors import InvalidOptionError
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tasks.row_names import (
    LONGEST_PART,
    RowNames,
    RowRoute,
    imported_route,
    table_part,
    unrouted_name,
)


def by_kind(rows: pa.RecordBatch) -> pa.Array:
    """For `imported_route`."""
    return rows.column("kind")


def named(template: str, function: Any = None, **columns: Any) -> list[str | None]:
    rows = pa.record_batch(list(map(pa.array, columns.values())), names=list(columns))
    found = RowNames(RowRoute(template, function)).of(rows)
    names: list[str | None] = [None] * rows.num_rows
    for name, places in found.places():
        for place in places:
            names[place] = name
    assert found.without_table().tolist() == [at for at, name in enumerate(names) if name is None]
    return names


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("DE", "de"),
        (" New York ", "new_york"),
        ("../../etc", "______etc"),
        ("Österreich", "österreich"),
        ("O\u0308sterreich", "österreich"),
        ("a.b-c", "a_b_c"),
        (12, "12"),
        (-1, "_1"),
        (True, "true"),
        (datetime.date(2024, 1, 31), "2024_01_31"),
        ("", None),
        ("///", None),
        ("x" * LONGEST_PART, "x" * LONGEST_PART),
        ("x" * (LONGEST_PART + 1), None),
        ("ö" * LONGEST_PART, None),
    ],
)
def test_a_value_becomes_a_safe_part_of_a_name(value: Any, part: str | None) -> None:
    assert table_part(value) == part


def test_rows_are_named_by_their_fields() -> None:
    assert named("lake/e_{row.c}", c=["DE", None, "fr", "de", "/"]) == [
        "lake/e_de",
        None,
        "lake/e_fr",
        "lake/e_de",
        None,
    ]
    assert named("{row.c}.{row.n}_{row.c}", c=["a", "b", None, "a"], n=[1, 1, 1, None]) == [
        "a.1_a",
        "b.1_b",
        None,
        None,
    ]
    assert named("t_{row.s.c}", s=[{"c": "x"}, None, {"c": None}]) == ["t_x", None, None]
    assert named("t_{row.c}", c=pa.array([], pa.string())) == []
    assert named("t_{row.c}", c=pa.array([None, None], pa.string())) == [None, None]
    assert named("t_{row.c}", c=[True, False]) == ["t_true", "t_false"]


def test_many_rows_get_the_names_that_they_get_one_by_one() -> None:
    numbers = np.random.default_rng(7)
    left = numbers.integers(0, 40, 5_000).tolist()
    right = [None if at % 7 == 0 else f"R{at % 13}" for at in numbers.integers(0, 10_000, 5_000).tolist()]
    expected = [None if b is None else f"{a}-{b.lower()}" for a, b in zip(left, right, strict=True)]
    assert named("{row.a}-{row.b}", a=left, b=right) == expected


def test_a_function_names_tables_as_it_likes() -> None:
    def route(rows: pa.RecordBatch) -> Any:
        return [None if kind is None else f"Db.{kind}" for kind in rows.column("kind").to_pylist()]

    assert named("{route}", route, kind=["A", None, "b"]) == ["Db.A", None, "Db.b"]
    assert named("x/{route}", by_kind, kind=["A", "", "../b", "a\nb", "{c}"]) == [
        "x/A",
        None,
        None,
        None,
        None,
    ]
    dictionary = pa.array(["A", "B"]).dictionary_encode()
    assert named("{route}", lambda rows: dictionary, kind=["x", "y"]) == ["A", "B"]
    assert named("{route}", lambda rows: pa.chunked_array([["A"], ["B"]]), kind=["x", "y"]) == ["A", "B"]
    assert named("{row.kind}/{route}", lambda rows: pa.nulls(1), kind=["x"]) == [None]


@pytest.mark.parametrize(
    ("route", "message"),
    [
        (lambda rows: ["a"], "returned 1 tables for a batch of 2 rows"),
        (lambda rows: [{"a": 1}, {"b": 2}], "is to return an array of texts"),
        (lambda rows: 7, "is to return an array of texts"),
        (lambda rows: rows.column("nope"), "failed for a batch of 2 rows: KeyError"),
    ],
)
def test_a_function_that_is_wrong_is_told(route: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        named("{route}", route, kind=["x", "y"])


def test_no_row_names_a_table_of_rejects() -> None:
    """They hold the rejects of the table that has the name before the ending, and only those."""
    assert named(
        "e_{row.c}", c=["de__rejects", "DE rejects", "de__ REJECTS", "de__rejects_", " de  Rejects"]
    ) == [
        None,
        "e_de_rejects",
        None,
        "e_de__rejects_",
        None,
    ]
    assert named("e_{row.a}_{row.b}/", a=["x", "x_"], b=["rejects", "_rejects"]) == ["e_x_rejects/", None]
    assert named("e_{row.a}_{row.b}", a=["x", "x_"], b=["_rejects", "rejects"]) == [None, None]
    assert named("{route}", by_kind, kind=["x__rejects", "x__rejects/"]) == [None, None]
    rows = pa.record_batch([pa.array(["de__rejects"])], names=["c"])
    reason = RowNames(RowRoute("e_{row.c}")).of(rows).reason(0)
    assert reason.startswith("it names the table 'e_de__rejects', and names that end in __rejects are")


def test_why_a_row_has_no_table() -> None:
    rows = pa.record_batch([pa.array(["a", None, "//"])], names=["c"])
    reason = RowNames(RowRoute("t_{row.c}")).of(rows).reason
    assert reason(1) == "its field c, which names the table, is null"
    assert reason(2) == "its field c is '//', of which no table's name can be made"
    reason = RowNames(RowRoute("t_{route}", lambda rows: [None, "..", "x"])).of(rows).reason
    assert reason(0).endswith("gives no table")
    assert "'..', which cannot be the name of a table" in reason(1)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("countri", r"no such field; did you mean '\{row.country\}'"),
        ("at", "which is a struct: tables are named by text"),
        ("at.cty", "did you mean '{row.at.city}'"),
        ("amount", r"which is decimal\(10, ?2\)"),
        ("tags.element", "no such field"),
    ],
)
def test_a_field_that_names_no_table_is_refused(field: str, message: str) -> None:
    schema = parse_ddl(
        "country string, amount decimal(10,2), at struct<city: string>, tags array<string>, day date"
    )
    RowRoute("t_{row.country}_{row.at.city}_{row.day}").check(schema)
    with pytest.raises(InvalidOptionError, match=message):
        RowRoute(f"t_{{row.{field}}}").check(schema)


def test_functions_are_imported_by_name() -> None:
    assert imported_route(f"{__name__}:by_kind") is by_kind
    for name, message in [
        ("os.path", "package.module:function"),
        (f"{__name__}:nothing", "cannot be imported"),
        ("no.such.module:f", "cannot be imported"),
        (f"{__name__}:__name__", "is str and no function"),
    ]:
        with pytest.raises(InvalidOptionError, match=message):
            imported_route(name)
    assert unrouted_name("a/{row.x}_{route}") == "a/unrouted_unrouted"
