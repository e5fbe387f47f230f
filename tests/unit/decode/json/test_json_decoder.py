"""The bulk way against the exact way, types one by one, and records that try to slip through."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.decode.json.json_columns import JsonColumns, has_map
from streamlake.decode.json.json_decoder import JsonDecoder
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import parse_object, row
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import DecodeError, FeatureUnsupportedError, InvalidOptionError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.ddl import parse_ddl

OPTIONS = JsonOptions()


class Bad(Exception):
    """What the tests' failure function makes: (index, reason)."""

    def __str__(self):
        return self.args[1]


def decode(schema, values, options=OPTIONS):
    decoder = JsonDecoder(parse_ddl(schema), options)
    return decoder.decode(pa.array(values, pa.binary()), lambda at, reason: Bad(at, reason))


def rows(schema, values, options=OPTIONS):
    names = parse_ddl(schema).column_names
    columns = decode(schema, values, options)
    return [
        dict(zip(names, cells, strict=True)) for cells in zip(*[c.to_pylist() for c in columns], strict=True)
    ]


def column(type_, *texts, options=OPTIONS):
    """The values of JSON texts in a column of `type_`, and whether the bulk way took them."""
    schema = parse_ddl(f"a {type_}")
    values = [b'{"a":' + text.encode() + b"}" for text in texts]
    array = decode(f"a {type_}", values, options)[0]
    assert array.type.equals(schema_to_arrow(schema).field(0).type)
    array.validate(full=True)
    return array


def plain(array):
    """The values as text that tells NaN, -0.0 and times beyond Python's years apart."""
    try:
        return repr(array.to_pylist())
    except OverflowError:
        return repr(array.cast(pa.int64()).to_pylist())


def bulk_takes(type_, text, options=OPTIONS):
    try:
        JsonColumns(parse_ddl(f"a {type_}").fields, options, strict_names=False).read(
            pa.array([b'{"a":' + text.encode() + b"}"], pa.binary())
        )
    except NotBulkError:
        return False
    return True


GOOD = [
    ("boolean", "true", True),
    ("int", "-2147483648", -(2**31)),
    ("long", "9223372036854775807", 2**63 - 1),
    ("float", "1.5", 1.5),
    ("double", "-0.0", -0.0),
    ("double", "1e300", 1e300),
    ("double", "12345678901234567890123", 12345678901234567890123.0),
    ("decimal(10,2)", "1.23", Decimal("1.23")),
    ("decimal(10,2)", '"1.23"', Decimal("1.23")),
    ("decimal(10,2)", "1.2300", Decimal("1.23")),
    ("decimal(10,2)", "1e2", Decimal("100.00")),
    (
        "decimal(38,10)",
        "1234567890123456789012345678.0123456789",
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    ("decimal(38,0)", '"-99999999999999999999999999999999999999"', Decimal(f"-{'9' * 38}")),
    ("string", '"\\u00e9\\ud83d\\ude00 \\n"', "é😀 \n"),
    ("string", '""', ""),
    ("binary", '"AP8="', b"\x00\xff"),
    ("binary", '""', b""),
    ("fixed[3]", '"YWJj"', b"abc"),
]
MOMENTS = [
    ("date", '"1969-12-31"', -1),
    ("date", '"0001-01-01"', -719162),
    ("time", '"23:59:59.999999"', 86_399_999_999),
    ("time", '"12:30"', 45_000_000_000),
    ("timestamptz", '"2024-05-01T00:00:00Z"', 1_714_521_600_000_000),
    ("timestamptz", '"2024-05-01T02:00:00.5+02:00"', 1_714_521_600_500_000),
    ("timestamptz", '"2024-05-01 00:00:00"', 1_714_521_600_000_000),
    ("timestamp_ntz", '"1969-12-31T23:59:59.999999"', -1),
    ("timestamp_ntz", '"2024-05-01"', 1_714_521_600_000_000),
]
SLOW_MOMENTS = [
    ("timestamptz", '"2024-05-01T00:00:00.123456000Z"', 1_714_521_600_123_456),
    ("timestamp_ns", '"1970-01-01T00:00:00.000000001"', 1),
    ("time", '"00:00:00.0000010"', 1),
]


@pytest.mark.parametrize(("type_", "text", "expected"), GOOD)
def test_values(type_, text, expected):
    (found,) = column(type_, text).to_pylist()
    assert found == expected
    assert repr(found) == repr(expected)
    assert bulk_takes(type_, text)


@pytest.mark.parametrize(("type_", "text", "expected"), MOMENTS + SLOW_MOMENTS)
def test_dates_and_times(type_, text, expected):
    array = column(type_, text)
    width = pa.int32() if type_ == "date" else pa.int64()
    assert array.cast(width).to_pylist() == [expected]
    if (type_, text, expected) in MOMENTS:
        assert bulk_takes(type_, text)


def test_uuid():
    text = '"F79C3E09-677c-4bbd-a479-3f349cb785e7"'
    assert column("uuid", text, "null").to_pylist() == [
        bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7"),
        None,
    ]
    assert bulk_takes("uuid", text)


BAD = [
    ("boolean", "1", "true or false"),
    ("int", "2147483648", "does not fit 32 bits"),
    ("int", "1.0", "whole number"),
    ("int", '"1"', "whole number"),
    ("long", "9223372036854775808", "does not fit 64 bits"),
    ("long", "true", "whole number"),
    ("float", "1e40", "too large"),
    ("double", "1e999", "too large"),
    ("double", '"x"', "a number is needed"),
    ("decimal(10,2)", "1.234", "more than 2 digits after"),
    ("decimal(4,2)", "100", "more than 2 digits before"),
    ("decimal(10,2)", "1e999999999", "digits before"),
    ("decimal(10,2)", '"1_0"', "not a number"),
    ("decimal(10,2)", "NaN", "finite"),
    ("string", "5", "text is needed"),
    ("string", '{"b": 1}', "found an object"),
    ("string", '"\\ud800"', "surrogate"),
    ("date", '"2024-02-30"', "day"),
    ("date", "19000", "text is needed"),
    ("time", '"24:00:00"', "no time"),
    ("time", '"00:00:00.0000001"', "more than 6 digits"),
    ("timestamptz", "1714521600000", "json.timestamp-format"),
    ("timestamptz", '"2024-05-01T00:00:00.1234567Z"', "more than 6 digits"),
    ("timestamptz", '"2024-05-01T00:00:00+25:00"', "zone offset"),
    ("timestamp_ns", '"3000-01-01T00:00:00"', "outside"),
    ("uuid", '"f79c3e09677c4bbda4793f349cb785e7"', "a uuid looks like"),
    ("binary", '"AP8"', "base64"),
    ("binary", '"AP9="', None),
    ("fixed[3]", '"AP8="', "holds 2 bytes instead of 3"),
    ("array<int>", "{}", "an array is needed"),
    ("struct<a:int>", "[]", "an object is needed"),
    ("map<string,int>", "[1]", "an object, or an array"),
    ("map<int,int>", '{"x": 1}', "a.key"),
    ("map<string,int>", '{"x": 1, "x": 2}', "there twice"),
    ("struct<b: struct<c: int>>", '{"b": {"c": "x"}}', "'a.b.c' is int"),
    ("array<struct<b: int>>", '[{"b": 1}, {"b": 2.5}]', "'a.element.b' is int"),
]


@pytest.mark.parametrize(("type_", "text", "problem"), BAD)
def test_misfits(type_, text, problem):
    if problem is None:
        # Bits in the padding: no encoder writes them; the exact way is Python's, which takes them.
        assert column(type_, text).to_pylist() == [b"\x00\xff"]
        return
    with pytest.raises(Bad, match=problem):
        column(type_, text)


def test_not_a_number():
    found = column("double", '"NaN"', '"-Infinity"', "1").to_pylist()
    assert math.isnan(found[0])
    assert found[1:] == [-math.inf, 1.0]


@pytest.mark.parametrize(
    ("format_", "text", "expected"),
    [
        ("epoch-seconds", "1714521600", 1_714_521_600_000_000),
        ("epoch-seconds", "1714521600.25", 1_714_521_600_250_000),
        ("epoch-millis", "1714521600001", 1_714_521_600_001_000),
        ("epoch-micros", "-1", -1),
        ("epoch-nanos", "1714521600000001000", 1_714_521_600_000_001),
        ("epoch-millis", '"2024-05-01T00:00:00Z"', 1_714_521_600_000_000),
    ],
)
def test_epoch_numbers(format_, text, expected):
    options = JsonOptions.parse({"json.timestamp-format": format_})
    assert column("timestamptz", text, "null", options=options).cast(pa.int64()).to_pylist() == [
        expected,
        None,
    ]


@pytest.mark.parametrize(
    ("format_", "text"),
    [("epoch-nanos", "1"), ("epoch-seconds", "9223372036854775807"), ("epoch-millis", "1e999999999")],
)
def test_epoch_numbers_are_not_rounded(format_, text):
    with pytest.raises(Bad, match=r"lose digits|outside"):
        column("timestamptz", text, options=JsonOptions.parse({"json.timestamp-format": format_}))


def test_nested_values_and_nulls():
    schema = "s struct<a: int, l: array<struct<u: uuid, d: date>>>, m map<string, array<long>>, l array<array<binary>>"
    values = [
        b'{"s": {"a": 1, "l": [{"u": "f79c3e09-677c-4bbd-a479-3f349cb785e7", "d": "2024-01-01"}, null]}, "l": [["YQ=="], null, []]}',
        b'{"s": null, "m": {"x": [1, null], "y": null}, "l": []}',
        b'{"m": {}, "l": null, "s": {"l": []}}',
        b"{}",
    ]
    found = rows(schema, values)
    assert found[0]["s"]["l"][0]["u"].hex() == "f79c3e09677c4bbda4793f349cb785e7"
    assert found[0]["s"]["l"][1] is None
    assert found[0]["l"] == [[b"a"], None, []]
    assert found[1] == {"s": None, "m": [("x", [1, None]), ("y", None)], "l": []}
    assert found[2] == {"s": {"a": None, "l": []}, "m": [], "l": None}
    assert found[3] == {"s": None, "m": None, "l": None}


def test_maps_with_keys_that_are_not_text():
    array = column("map<int, string>", '{"1": "a", "-7": null}', '[{"key": 3, "value": "c"}]')
    assert array.to_pylist() == [[(1, "a"), (-7, None)], [(3, "c")]]
    assert column("map<decimal(4,2), boolean>", '{"1.50": true}').to_pylist() == [[(Decimal("1.50"), True)]]


@pytest.mark.parametrize(
    ("values", "at"),
    [
        ([b'{"a":1}', b'{"a":2}{"a":3}', b'{"a":4}'], 1),
        ([b'{"a":1}', b'{"a":2}\n{"a":3}', b""], 1),
        ([b'{"a":1}', b""], 1),
        ([b'{"a":1}', b"  "], 1),
        ([b'{"a":1', b',"b":2}', b'{"a":3}{"a":4}'], 0),
        ([b'{"a":1}', b"null"], 1),
        ([b"null"], 0),
        ([b'{"a":1} null {"a":2}', b""], 0),
        ([b'{"a":1}', b"[1]"], 1),
        ([b'{"a":1}', b"5"], 1),
        ([b'{"a":1}', b'{"a":1}x'], 1),
        ([b'{"a":1}', b'{"a":1,}'], 1),
        ([b'{"a":1}', b'{"a":1}\x00'], 1),
        ([b'{"a":1}', b'{"s":"}\n{"}'], 1),
        ([b'{"a":1}', b'{"s":"', b'"}'], 1),
        ([b'{"a":1}', b"{" * 100_000], 1),
        ([b'{"a":1}', b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"], 1),
        ([b'{"a":1}', b'{"s":"\xff"}'], 1),
        ([b'{"a":1}', b'{"a":1,"a":2}'], 1),
        ([b'{"a":1}', b'{"a":' + b"9" * 5_000 + b"}"], 1),
        ([b'{"a":1}', b"\xff\xfe{\x00}\x00"], 1),
        ([b'{"a":1}'] * 999 + [b'{"a":"x"}'] + [b'{"a":1}'] * 500, 999),
    ],
)
def test_bad_records_are_found_at_their_place(values, at):
    with pytest.raises(Bad) as raised:
        decode("a long, s string", values)
    assert raised.value.args[0] == at


def test_odd_but_valid_records_keep_their_place():
    values = [
        b'{"a":1}',
        b' {\n "a" :\t2 }\r\n',
        b'\xef\xbb\xbf{"a":3}',
        b"{}",
        b'{"a":null,"z":[{}]}',
        b'{"a":6}',
    ]
    assert [record["a"] for record in rows("a long", values)] == [1, 2, 3, None, None, 6]


def test_one_odd_record_among_many_keeps_its_place():
    values = [b'{"t":"2024-05-01T00:00:00.000001Z","i":%d}' % at for at in range(5_000)]
    values[1_234] = b'{"t":"2024-05-01T00:00:00.000009000Z","i":1234}'
    found = decode("t timestamptz, i int", values)
    assert found[1].to_pylist() == list(range(5_000))
    micros = found[0].cast(pa.int64())
    assert micros[1_234].as_py() - micros[0].as_py() == 8


def test_required_fields():
    assert rows("a long not null", [b'{"a":1}']) == [{"a": 1}]
    for record in (b"{}", b'{"a":null}'):
        with pytest.raises(Bad, match="'a' is required"):
            decode("a long not null", [b'{"a":1}', record])
    nested = "s struct<a: long not null, b: int>"
    assert rows(nested, [b'{"s":null}', b'{"s":{"a":1}}']) == [{"s": None}, {"s": {"a": 1, "b": None}}]
    with pytest.raises(Bad, match=r"'s\.a' is required"):
        decode(nested, [b'{"s":{"b":1}}'])


def test_unknown_fields():
    assert rows("a long", [b'{"a":1,"b":2}']) == [{"a": 1}]
    strict = JsonOptions.parse({"json.unknown-fields": "fail"})
    assert rows("a long, m map<string,int>", [b'{"a":1}'], strict) == [{"a": 1, "m": None}]
    for schema in ("a long", "a long, m map<string,int>", "a long, s struct<x: int>"):
        with pytest.raises(Bad, match="'b' is not in the schema"):
            decode(schema, [b'{"a":1}', b'{"a":1,"b":2}'], strict)
    with pytest.raises(Bad, match=r"'s\.y' is not in the schema"):
        decode("s struct<x: int>", [b'{"s":{"y":1}}'], strict)


def test_no_records():
    assert [len(array) for array in decode("a long, m map<string,int>, l array<date>", [])] == [0, 0, 0]


def test_types_without_a_json_form():
    with pytest.raises(FeatureUnsupportedError, match=r"'s\.v' is variant"):
        JsonDecoder(parse_ddl("s struct<v: variant>"), OPTIONS)


def test_option_mistakes():
    with pytest.raises(InvalidOptionError, match=r"did you mean 'json\.timestamp-format'"):
        JsonOptions.parse({"json.timestampformat": "iso"})
    with pytest.raises(InvalidOptionError, match="epoch-millis"):
        JsonOptions.parse({"json.timestamp-format": "millis"})


TYPES = [
    "boolean", "int", "long", "float", "double", "decimal(9,3)", "decimal(38,10)", "date", "time", "timestamptz",
    "timestamp_ntz", "timestamp_ns", "timestamptz_ns", "string", "uuid", "fixed[2]", "binary", "array<int>",
    "array<timestamptz>", "struct<x: int not null, y: array<string>>", "array<struct<x: date, y: binary>>",
    "array<array<double>>", "struct<s: struct<u: uuid>>", "map<string, int>", "array<map<int, date>>",
]  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-5, 5),
    st.floats(),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(
        ["2024-02-29", "2023-02-29", "1969-12-31T23:59:59.999999Z", "2024-05-01 10:00", "2024-05-01T10:00:00.1234567",
         "12:30:15.5", "24:00:00", "9999-12-31T23:59:59Z", "1677-09-21T00:12:43", "2262-04-11T23:47:16.854775807",
         "2262-04-11T23:47:16.854775808", "2024-05-01T10", "2024-05-01T10:00:00+0230", "2024-05-01T10:00:00 Z",
         "f79c3e09-677c-4bbd-a479-3f349cb785e7", "YQ==", "YWI=", "YWJj", "YR==", "Y===", "=", "YQ=a", "a\nb", "1.5",
         "1e3", "-.5", "+1", "0x1", "99999999999999999999999999999999999999", " 1", "NaN", "inf"]
    ),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["x", "y", "s", "u", "1"]), inner, max_size=3),
    ),
    max_leaves=5,
)
FORMATS = st.sampled_from(["iso", "epoch-seconds", "epoch-millis", "epoch-nanos"])


@settings(deadline=None, max_examples=1500)
@given(st.sampled_from(TYPES), st.lists(VALUES, min_size=1, max_size=6), FORMATS)
def test_what_the_bulk_way_gives_is_what_the_exact_way_gives(type_, values, format_):
    options = JsonOptions(format_)
    schema = parse_ddl(f"a {type_}")
    records = [json.dumps({"a": value}).encode() for value in values]
    try:
        exact = [row(parse_object(record), schema.fields, options)["a"] for record in records]
    except ValueError:
        with pytest.raises(Bad):
            decode(f"a {type_}", records, options)
        return
    expected = pa.array(exact, schema_to_arrow(schema).field(0).type)
    found = decode(f"a {type_}", records, options)[0]
    assert found.type == expected.type
    assert plain(found) == plain(expected)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from([t for t in TYPES if not has_map(parse_ddl(f"a {t}").struct)]), VALUES, FORMATS)
def test_the_bulk_way_alone_takes_nothing_that_the_exact_way_refuses(type_, value, format_):
    options = JsonOptions(format_)
    schema = parse_ddl(f"a {type_}")
    record = json.dumps({"a": value}).encode()
    try:
        bulk = JsonColumns(schema.fields, options, strict_names=False).read(pa.array([record], pa.binary()))[
            0
        ]
    except NotBulkError:
        return
    exact = row(parse_object(record), schema.fields, options)["a"]
    assert plain(bulk) == plain(pa.array([exact], bulk.type))


def test_decode_errors_are_raised_as_they_are_made():
    with pytest.raises(DecodeError, match="here"):
        JsonDecoder(parse_ddl("a int"), OPTIONS).decode(
            pa.array([b"x"], pa.binary()), lambda at, reason: DecodeError("here")
        )
