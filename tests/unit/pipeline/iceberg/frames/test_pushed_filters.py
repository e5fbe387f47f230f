"""Filters that Spark pushes down: the rows for which SQL says true, or Spark checks them itself."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from pyspark.sql.datasource import DataSourceReader

filters = pytest.importorskip("pyspark.sql.datasource", reason="filters exist from PySpark 4.1 on")
if not hasattr(filters, "EqualTo"):
    pytest.skip("filters exist from PySpark 4.1 on", allow_module_level=True)

from pyspark.sql.datasource import (  # noqa: E402
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from streamlake.tables import create_table  # noqa: E402
from tests.unit.pipeline.iceberg.frames.spark_stand_in import Batch  # noqa: E402
from tests.unit.read.written_tables import append  # noqa: E402

NAN = float("nan")
ROWS = [
    {"id": 0, "name": "a%b", "ratio": 1.5, "on": date(2026, 1, 1), "price": Decimal("1.25"), "s": {"n": 1}},
    {"id": 1, "name": "a_b", "ratio": NAN, "on": date(2026, 1, 2), "price": Decimal("2.50"), "s": {"n": 2}},
    {"id": 2, "name": "xyz", "ratio": -0.0, "on": None, "price": None, "s": {"n": None}},
    {"id": 3, "name": None, "ratio": None, "on": date(1969, 12, 31), "price": Decimal("-1.00"), "s": None},
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    made = create_table(
        tmp_path_factory.mktemp("pushed") / "t",
        "id long, name string, ratio double, on date, price decimal(9,2), s struct<n: int>, u uuid, "
        "f fixed(2), at timestamp, `x.y` int",
    )
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    rest = {"u": UUID(int=1).bytes, "f": b"ab", "at": moment, "x.y": 5}
    append(made, [{**row, **rest} for row in ROWS])
    return made


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (EqualTo(("id",), 1), [1]),
        (Not(EqualTo(("id",), 1)), [0, 2, 3]),
        (EqualTo(("name",), "a%b"), [0]),
        (Not(EqualTo(("name",), "a%b")), [1, 2]),
        (EqualNullSafe(("name",), "a%b"), [0]),
        (Not(EqualNullSafe(("name",), "a%b")), [1, 2, 3]),
        (EqualNullSafe(("name",), None), [3]),
        (Not(EqualNullSafe(("name",), None)), [0, 1, 2]),
        (In(("id",), (0, 3, 9)), [0, 3]),
        (Not(In(("name",), ("a%b", "xyz"))), [1]),
        (IsNull(("price",)), [2]),
        (IsNotNull(("price",)), [0, 1, 3]),
        (Not(IsNull(("name",))), [0, 1, 2]),
        (GreaterThan(("ratio",), 1.0), [0, 1]),
        (EqualTo(("ratio",), NAN), [1]),
        (Not(EqualTo(("ratio",), NAN)), [0, 2]),
        (EqualTo(("ratio",), 0.0), [2]),
        (LessThan(("on",), date(2026, 1, 1)), [3]),
        (LessThanOrEqual(("on",), date(2026, 1, 1)), [0, 3]),
        (GreaterThanOrEqual(("price",), Decimal("1.25")), [0, 1]),
        (GreaterThan(("price",), Decimal("1.249")), [0, 1]),
        (EqualTo(("s", "n"), 2), [1]),
        (Not(EqualTo(("s", "n"), 2)), [0]),
        (StringStartsWith(("name",), "a%"), [0]),
        (Not(StringStartsWith(("name",), "a%")), [1, 2]),
        (StringEndsWith(("name",), "_b"), [1]),
        (StringContains(("name",), "%"), [0]),
        (Not(StringContains(("name",), "%")), [1, 2]),
        (EqualTo(("at",), datetime(2026, 1, 1, tzinfo=timezone.utc)), [0, 1, 2, 3]),
        (LessThan(("at",), datetime(2026, 1, 1, tzinfo=timezone.utc)), []),
    ],
    ids=str,
)
def test_taken_over(table, pushed, expected):
    batch = Batch(table)
    assert batch.ids(pushed) == expected
    assert batch.left == []


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("u",), str(UUID(int=1)).upper()),
        EqualTo(("f",), b"abc"),
        EqualTo(("x.y",), 5),
        EqualTo(("id",), None),
        EqualTo(("id",), "text"),
        Not(In(("name",), ("xyz", None))),
        EqualTo(("none",), 1),
    ],
    ids=str,
)
def test_left_to_spark(table, pushed):
    batch = Batch(table)
    assert batch.ids(pushed, IsNotNull(("id",))) == [0, 1, 2, 3]
    assert batch.left == [pushed]


def test_with_the_filter_of_the_options(table):
    batch = Batch(table, filter="id > 0")
    assert batch.ids(LessThan(("id",), 3)) == [1, 2]


def test_a_limit_comes_before_the_filters_of_a_query(table):
    batch = Batch(table, limit=2)
    pushed = EqualTo(("id",), 3)
    assert batch.ids(pushed) == [0, 1]
    assert batch.left == [pushed]


def test_spark_takes_it_for_the_inherited_one(table):
    """Where pushing is off, Spark refuses readers that have a `pushFilters` of their own."""
    reader = Batch(table).source.reader(Batch(table).schema)
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
