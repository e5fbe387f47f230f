"""Rows with every awkward value there is, as DDL text and a `pyarrow.Table`; the same on every call.

Each sample has a unique `id` and fits the limits of all engines (ClickHouse's dates: 1900 to 2299); `FAR` goes beyond.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

EPOCH = datetime.datetime(1970, 1, 1)
UTC = datetime.timezone.utc

NAMES = [
    "",
    "a",
    "é",
    "日本語の文字列",
    "𝄞 clef",
    "\U0010ffff" * 20,
    "x" * 40,
    "\uffff" * 17,
    "a/b=c%d e?f#g+h&i",
    "it's 'quoted' \"twice\" \\ once",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    "new\nline\ttab",
    "z" * 15 + "é" + "z" * 20,
    "ünïcödé" * 5,
    " leading and trailing ",
]
DOUBLES = [
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    0.0,
    5e-324,
    -1.7976931348623157e308,
    1 / 3,
    1e16 + 2,
]
FLOATS = [
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    0.0,
    1.401298464324817e-45,
    3.4028234663852886e38,
    0.5,
    -2.25,
]
BIG = [-(2**63), 2**63 - 1, 0, -1, 2**53 + 1]
SMALL = [-(2**31), 2**31 - 1, 0, -1]
TIMES = [
    EPOCH,
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(1900, 1, 1),
    datetime.datetime(1965, 2, 28, 11, 22, 33, 123_456),
    datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999),
    datetime.datetime(2199, 12, 31, 1, 2, 3, 4),
]
PAYLOADS = [b"", b"\x00", b"\xff" * 20, b"\xff\xff\xff", b"\x00\xff\x80text", bytes(range(40))]


@dataclass(frozen=True)
class Sample:
    """`ddl` is the table's schema, `columns` makes the values of one column from (random, row number)."""

    name: str
    ddl: str
    types: dict[str, pa.DataType]
    columns: dict[str, Callable[[random.Random, int], Any]]
    count: int = 60

    @cached_property
    def table(self) -> pa.Table:
        """All rows, `id` first."""
        source = random.Random(self.name)
        arrays = {"id": pa.array([row * 3 - 20 for row in range(self.count)], pa.int64())}
        for name, make in self.columns.items():
            arrays[name] = pa.array([make(source, row) for row in range(self.count)], self.types[name])
        required = {"id"}
        return pa.table(
            list(arrays.values()),
            pa.schema([pa.field(name, each.type, name not in required) for name, each in arrays.items()]),
        )


def _edge(
    edges: list[Any], make: Callable[[random.Random], Any], nulls: int = 9
) -> Callable[[random.Random, int], Any]:
    """Edge values first, then made ones, and every `nulls`-th a null."""

    def value(source: random.Random, row: int) -> Any:
        made = make(source)
        if row % nulls == 4:
            return None
        return edges[row] if row < len(edges) else made

    return value


def _decimal(precision: int, scale: int) -> Callable[[random.Random, int], Any]:
    edges = [_scaled(unscaled, scale) for unscaled in (10**precision - 1, 1 - 10**precision, 0, 1, -1)]
    digits = 10 ** min(precision, 12)
    return _edge(edges, lambda source: _scaled(source.randrange(-digits, digits), scale))


def _scaled(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def _moment(source: random.Random) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=source.randrange(-(10**15), 2 * 10**15))


def _nanos(source: random.Random) -> int:
    return source.randrange(-(10**18), 2 * 10**18)


def _text(source: random.Random) -> str:
    return "".join(source.choice("abcdeéß日𝄞 ") for _ in range(source.randrange(1, 25)))


PRIMITIVES = Sample(
    "primitives",
    "id long not null, flag boolean, small int, big long, ratio float, amount double, price decimal(9,2), "
    "total decimal(18,4), huge decimal(38,10), day date, at timestamp_ntz, moment timestamptz, name string, "
    "payload binary, category string",
    {
        "flag": pa.bool_(),
        "small": pa.int32(),
        "big": pa.int64(),
        "ratio": pa.float32(),
        "amount": pa.float64(),
        "price": pa.decimal128(9, 2),
        "total": pa.decimal128(18, 4),
        "huge": pa.decimal128(38, 10),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "moment": pa.timestamp("us", tz="UTC"),
        "name": pa.string(),
        "payload": pa.binary(),
        "category": pa.string(),
    },
    {
        "flag": _edge([True, False], lambda source: source.random() < 0.5),
        "small": _edge(SMALL, lambda source: source.randrange(-1000, 1000)),
        "big": _edge(BIG, lambda source: source.randrange(-(10**12), 10**12)),
        "ratio": _edge(FLOATS, lambda source: source.randrange(-(10**6), 10**6) / 64),
        "amount": _edge(DOUBLES, lambda source: source.gauss(0, 1e6)),
        "price": _decimal(9, 2),
        "total": _decimal(18, 4),
        "huge": _decimal(38, 10),
        "day": _edge([each.date() for each in TIMES], lambda source: _moment(source).date()),
        "at": _edge(TIMES, _moment),
        "moment": _edge(
            [each.replace(tzinfo=UTC) for each in TIMES], lambda s: _moment(s).replace(tzinfo=UTC)
        ),
        "name": _edge(NAMES, _text),
        "payload": _edge(PAYLOADS, lambda source: source.randbytes(source.randrange(0, 25))),
        "category": lambda source, row: NAMES[row % 4 + 7],
    },
)

EXOTIC = Sample(
    "exotic",
    "id long not null, token uuid, code fixed(5), clock time",
    {"token": pa.uuid(), "code": pa.binary(5), "clock": pa.time64("us")},
    {
        "token": _edge([bytes(16), b"\xff" * 16, b"\x80" + bytes(15)], lambda source: source.randbytes(16)),
        "code": _edge([bytes(5), b"\xff" * 5], lambda source: source.randbytes(5)),
        "clock": _edge(
            [datetime.time(0), datetime.time(23, 59, 59, 999_999)],
            lambda source: datetime.time(
                source.randrange(24), source.randrange(60), 1, source.randrange(10**6)
            ),
        ),
    },
)

NESTED = Sample(
    "nested",
    "id long not null, person struct<age: int, name: string, home: struct<lat: double, at: timestamptz>>, "
    "numbers array<int>, points array<struct<x: long, label: string>>, counts map<string, int>, "
    "books map<int, struct<price: decimal(10,2), tags: array<string>>>, grid array<array<string>>",
    {
        "person": pa.struct(
            [
                ("age", pa.int32()),
                ("name", pa.string()),
                ("home", pa.struct([("lat", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])),
            ]
        ),
        "numbers": pa.list_(pa.int32()),
        "points": pa.list_(pa.struct([("x", pa.int64()), ("label", pa.string())])),
        "counts": pa.map_(pa.string(), pa.int32()),
        "books": pa.map_(
            pa.int32(), pa.struct([("price", pa.decimal128(10, 2)), ("tags", pa.list_(pa.string()))])
        ),
        "grid": pa.list_(pa.list_(pa.string())),
    },
    {
        "person": _edge(
            [
                {"age": None, "name": None, "home": {"lat": None, "at": None}},
                {"age": 1, "name": "", "home": {"lat": float("nan"), "at": None}},
            ],
            lambda s: {
                "age": s.randrange(99),
                "name": _text(s),
                "home": {"lat": s.random(), "at": _moment(s).replace(tzinfo=UTC)},
            },
            nulls=1000,
        ),
        "numbers": _edge(
            [[], [None], [1, None, 3]], lambda s: [s.randrange(9) for _ in range(s.randrange(5))]
        ),
        "points": _edge(
            [[], [{"x": None, "label": None}]],
            lambda s: [{"x": s.randrange(9), "label": _text(s)}] * s.randrange(3),
        ),
        "counts": _edge(
            [[], [("", None), ("é", -1)]],
            lambda s: [(f"k{key}", s.randrange(9)) for key in range(s.randrange(4))],
        ),
        "books": _edge(
            [[]],
            lambda s: [
                (key, {"price": Decimal("1.50"), "tags": [_text(s)] * key}) for key in range(s.randrange(3))
            ],
        ),
        "grid": _edge(
            [[], [[]], [["a", None], []]], lambda s: [[_text(s)] * s.randrange(3)] * s.randrange(3)
        ),
    },
)

NANOS = Sample(
    "nanos",
    "id long not null, at timestamp_ns, moment timestamptz_ns",
    {"at": pa.timestamp("ns"), "moment": pa.timestamp("ns", tz="UTC")},
    {
        "at": _edge([0, -1, 1, 1_700_000_000_123_456_789], _nanos),
        "moment": _edge([0, -1, 1, 1_700_000_000_123_456_789], _nanos),
    },
)

FAR = Sample(
    "far",
    "id long not null, day date, at timestamp_ntz, moment timestamptz",
    {"day": pa.date32(), "at": pa.timestamp("us"), "moment": pa.timestamp("us", tz="UTC")},
    {
        "day": _edge(
            [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1582, 10, 10)],
            lambda source: datetime.date.fromordinal(source.randrange(1, 3_652_059)),
        ),
        "at": _edge(
            [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)], _moment
        ),
        "moment": _edge(
            [datetime.datetime(1582, 10, 10, tzinfo=UTC), datetime.datetime(9999, 1, 1, tzinfo=UTC)],
            lambda source: _moment(source).replace(tzinfo=UTC),
        ),
    },
)


def _part(name: str, whole: Sample, ddl: str) -> Sample:
    names = [part.split()[0] for part in ddl.split(", ") if part.split()[0] != "id"]
    return Sample(
        name, ddl, {each: whole.types[each] for each in names}, {each: whole.columns[each] for each in names}
    )


# What is left of a sample for engines that refuse a whole table for one column.
IDENTIFIERS = _part("identifiers", EXOTIC, "id long not null, token uuid, code fixed(5)")
INSTANTS_NS = _part("instants_ns", NANOS, "id long not null, at timestamp_ns")

SAMPLES = {
    sample.name: sample for sample in (PRIMITIVES, EXOTIC, IDENTIFIERS, NESTED, NANOS, INSTANTS_NS, FAR)
}
