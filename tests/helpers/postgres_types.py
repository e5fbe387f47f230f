"""PostgreSQL's common types: a value of each, and what an Iceberg table holds of it."""

from __future__ import annotations

import uuid
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

NAMED_TYPES = "create type mood as enum ('bad', 'fine'); create domain positive as int check (value > 0)"
"""SQL that makes the types of a database's own among TYPES."""
UTC = timezone.utc
CODE = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
TYPES: list[tuple[str, str, str, Any]] = [
    # PostgreSQL's type, the table's, a value in SQL, and the value in the table
    ("boolean", "boolean", "true", True),
    ("bit", "boolean", "B'0'", False),
    ("smallint", "int", "-32768", -32768),
    ("int", "long", "2147483647", 2147483647),
    ("bigint", "long", "-9223372036854775808", -(2**63)),
    ("oid", "long", "4000000000", 4_000_000_000),
    ("real", "float", "3.4028235e38", 3.4028234663852886e38),
    ("double precision", "double", "'NaN'", float("nan")),
    ("double precision", "double", "'-Infinity'", float("-inf")),
    ("double precision", "double", "0.1", 0.1),
    ("numeric(12,2)", "decimal(14,3)", "-0.50", Decimal("-0.500")),
    ("numeric(38,0)", "decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("numeric", "string", "123.4500", "123.45"),
    ("numeric", "string", "1e30", "1" + "0" * 30),
    ("numeric(50,3)", "string", "0.500", "0.500"),
    ("money", "decimal(20,2)", "'-1234.5'", Decimal("-1234.50")),
    ("text", "string", r"E'a\\b\t\n\r\",,é'", 'a\\b\t\n\r",,é'),
    ("text", "string", "''", ""),
    ("char(5)", "string", "'ab'", "ab   "),
    ("varchar(9)", "string", "'NULL'", "NULL"),
    ("bytea", "binary", r"'\x00ff27'", b"\x00\xff'"),
    ("bytea", "binary", "decode(repeat('ab', 300), 'hex')", b"\xab" * 300),
    ("bytea", "fixed[2]", r"'\x0102'", b"\x01\x02"),
    ("uuid", "uuid", f"'{CODE}'", uuid.UUID(CODE).bytes),
    ("json", "string", """'{"b": 1,  "a": null}'""", '{"b": 1,  "a": null}'),
    ("jsonb", "string", """'{"b": 1,  "a": null}'""", '{"a": null, "b": 1}'),
    ("xml", "string", "'<a>1</a>'", "<a>1</a>"),
    ("date", "date", "'0044-03-15'", date(44, 3, 15)),
    ("time", "time", "'23:59:59.999999'", time(23, 59, 59, 999999)),
    ("time(3)", "time", "'12:30'", time(12, 30)),
    ("timetz", "string", "'12:34:56.780+05:45'", "06:49:56.78Z"),
    ("timestamp", "timestamp_ntz", "'1500-02-28 00:00:00.000001'", datetime(1500, 2, 28, 0, 0, 0, 1)),
    (
        "timestamptz",
        "timestamptz",
        "'2026-01-02 03:04:05.678901+02'",
        datetime(2026, 1, 2, 1, 4, 5, 678901, UTC),
    ),
    ("interval", "long", "'1 year 2 mons 3 days 04:05:06.789'", 37_091_106_789_000),
    ("interval", "string", "'1 year 2 mons -3 days 04:05:06.5'", "P1Y2M-3DT4H5M6.5S"),
    ("mood", "string", "'fine'", "fine"),
    ("positive", "int", "5", 5),
    ("inet", "string", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("macaddr", "string", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("int4range", "string", "'[1,5)'", "[1,5)"),
    ("tstzrange", "string", "'[2026-01-01 00:00+00,)'", '["2026-01-01 00:00:00+00",)'),
    ("tsvector", "string", "'a fat cat'", "'a' 'cat' 'fat'"),
    ("bit(8)", "binary", "B'10110001'", b"\xb1"),
    ("varbit", "binary", "B'100000000'", b"\x00\x01"),
    ("point", "binary", "'(1.5,-2)'", bytes.fromhex("0101000000000000000000f83f00000000000000c0")),
    ("int[]", "array<int>", "'{1,null,3}'", [1, None, 3]),
    ("text[]", "array<string>", r"""array['a', null, E'b\n"\\', '']""", ["a", None, 'b\n"\\', ""]),
    ("text[]", "array<string>", "'{}'", []),
    ("char(3)[]", "array<string>", "'{ab}'", ["ab "]),
    ("numeric(10,2)[]", "array<decimal(10,2)>", "'{1.5,-2.25}'", [Decimal("1.50"), Decimal("-2.25")]),
    ("date[]", "array<date>", "'{2026-01-01,null}'", [date(2026, 1, 1), None]),
    (
        "timestamptz[]",
        "array<timestamptz>",
        "'{2026-01-02 03:04:05.678901+02}'",
        [datetime(2026, 1, 2, 1, 4, 5, 678901, UTC)],
    ),
    ("uuid[]", "array<uuid>", f"'{{{CODE}}}'", [uuid.UUID(CODE).bytes]),
    ("bytea[]", "array<binary>", r"array['\xdead'::bytea]", [b"\xde\xad"]),
    ("boolean[]", "array<boolean>", "'{t,f}'", [True, False]),
    ("double precision[]", "array<double>", "'{1.5,Infinity}'", [1.5, float("inf")]),
    ("jsonb[]", "array<string>", """array['{"a":1}'::jsonb]""", ['{"a": 1}']),
]


def _each(value: str, count: int = 900) -> str:
    """An array of `count` values of n."""
    return f"(select array_agg({value} order by n) from generate_series(1, {count}) n)"


def _line(kind: str) -> str:
    return f"(select ('(' || string_agg('(' || n || ',' || n % 7 || ')', ',') || ')')::{kind} from generate_series(1, 400) n)"


TOASTED: list[tuple[str, str, str]] = [
    # A type that can be stored out of line, a value that is, and one that is not. Debezium has a placeholder for these.
    ("text", "repeat('text', 3000)", "'a'"),
    ("varchar", "repeat('text', 3000)", "''"),
    ("char(6000)", "repeat('text', 1500)", "'a'"),
    ("bytea", "decode(repeat('ab', 6000), 'hex')", r"'\x00'"),
    ("json", "to_json(repeat('text', 3000))", "'{}'"),
    ("jsonb", "to_jsonb(repeat('text', 3000))", "'null'"),
    ("xml", "('<a>' || repeat('text', 3000) || '</a>')::xml", "'<a/>'"),
    ("hstore", "hstore('a', repeat('text', 3000))", "'a=>1'"),
    (
        "tsvector",
        "(select to_tsvector('simple', string_agg('w' || n, ' ')) from generate_series(1, 900) n)",
        "'a'",
    ),
    ("text[]", _each("'text ' || n"), "'{a,null}'"),
    ("varchar[]", _each("('text ' || n)::varchar"), "'{}'"),
    ("char(9)[]", _each("('t ' || n)::char(9)"), "'{a}'"),
    ("bytea[]", _each("decode(md5(n::text), 'hex')"), r"array['\xdead'::bytea]"),
    ("uuid[]", _each("md5(n::text)::uuid"), f"'{{{CODE}}}'"),
    ("json[]", _each("to_json(n)"), "array['{}'::json]"),
    ("jsonb[]", _each("to_jsonb(n)"), "array['[]'::jsonb]"),
    ("int[]", _each("n"), "'{95}'"),
    ("bigint[]", _each("n::bigint"), "'{95,null}'"),
    ("date[]", _each("date '2020-01-01' + n"), "'{2026-01-01}'"),
]
TOASTED_AS_NULL: list[tuple[str, str, str]] = [
    # Debezium sends null for these.
    ("numeric", "repeat('1234567890', 420)::numeric", "1.5"),
    ("varbit", "repeat('1011', 6000)::varbit", "B'1'"),
    ("polygon", _line("polygon"), "'((0,0),(1,1))'"),
    ("smallint[]", _each("n::smallint", 2000), "'{1}'"),
    ("real[]", _each("n::real"), "'{1.5}'"),
    ("double precision[]", _each("n / 3.0::double precision"), "'{1.5}'"),
    ("numeric(10,2)[]", _each("(n / 4.0)::numeric(10,2)"), "'{1.5}'"),
    ("timestamp[]", _each("timestamp '2020-01-01' + n * interval '1 second'"), "'{2026-01-01}'"),
    (
        "timestamptz[]",
        _each("timestamptz '2020-01-01 00:00+00' + n * interval '1 second'"),
        "'{2026-01-01 00:00+00}'",
    ),
    ("boolean[]", _each("n % 2 = 0", 3000), "'{t}'"),
    ("inet[]", _each("'10.0.0.1'::inet + n"), "'{10.0.0.1}'"),
    ("mood[]", _each("'fine'::mood", 3000), "'{bad}'"),
]
