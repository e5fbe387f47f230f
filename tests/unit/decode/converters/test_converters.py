"""Each reading's two ways against each other, value by value, and what must be refused."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from streamlake.decode.cdc.debezium.debezium_converters import converter_by_options, converter_by_schema
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.converters.extended_json import document_converters
from streamlake.decode.converters.text_converters import Latin1, NumberTruth, TextReal, TextTruth, TextWhole
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import FieldError, parse_object
from streamlake.decode.values.connect_schema import ConnectSchema
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import NestedField
from streamlake.spec.types.ddl import parse_ddl


def type_of(text):
    return parse_ddl(f"a {text}").fields[0].type


def bulk(converter, values):
    """The column of JSON values, or NotBulkError."""
    field = NestedField(0, "a", converter.physical)
    texts = [json.dumps({"a": value}).encode() for value in values]
    (array,) = JsonColumns([field], JsonOptions(), strict_names=False).read(pa.array(texts, pa.binary()))
    return converter.column(array)


def single(converter, value):
    found = parse_object(json.dumps({"a": value}).encode())["a"]
    return pa.array([converter.value(found, "a")], arrow_type(converter.type))


def plain(array):
    if pa.types.is_nested(array.type):
        return repr(array.to_pylist())
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64())
    return repr(array.to_pylist())


def both_ways(converter, good, bad):
    for value in [*good, None]:
        expected = single(converter, value)
        assert plain(bulk(converter, [value])) == plain(expected), value
    several = [*good, None, *good]
    whole = bulk(converter, several)
    whole.validate(full=True)
    assert whole.type.equals(arrow_type(converter.type))
    assert plain(whole) == plain(pa.concat_arrays([single(converter, value) for value in several]))
    for value in bad:
        with pytest.raises(FieldError, match=r"^'a' is "):
            single(converter, value)
        with pytest.raises(NotBulkError):
            bulk(converter, [value])


def unscaled(number):
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


INFINITY = 9_223_372_036_825_200_000
INFINITE_DAYS = (2_146_033_979, -2_147_472_691)
BIG = 10**38 - 1
LOGICAL = [
    (
        "int32 io.debezium.time.Date",
        "date",
        [0, -1, 2932896, -2_440_588, 2_145_042_905],
        ["2020-01-01", True, 1.5, 2**31, *INFINITE_DAYS],
    ),
    ("int32 io.debezium.time.Time", "time", [0, 86_399_999], [86_400_000, -1, "12:00"]),
    ("int64 io.debezium.time.MicroTime", "time", [0, 86_399_999_999], [86_400_000_000, -1]),
    ("int64 io.debezium.time.NanoTime", "time", [0, 1_000], [1, 86_400_000_000_000]),
    ("int64 io.debezium.time.NanoTime", "long", [1, 86_400_000_000_000], ["1"]),
    (
        "int64 io.debezium.time.Timestamp",
        "timestamp_ntz",
        [0, -1, 10**13],
        [INFINITY, -(2**63), "now", 10**16],
    ),
    ("int64 io.debezium.time.MicroTimestamp", "timestamp_ntz", [0, -1, 10**17], [INFINITY, 2**63 - 1]),
    ("int64 io.debezium.time.MicroTimestamp", "timestamptz", [1], [INFINITY]),
    ("int64 io.debezium.time.NanoTimestamp", "timestamp_ns", [0, -1, 10**18], [INFINITY]),
    ("int64 io.debezium.time.NanoTimestamp", "timestamp_ntz", [1_000], [1]),
    (
        "string io.debezium.time.ZonedTimestamp",
        "timestamptz",
        ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456+02:00"],
        ["infinity", "-infinity", 5],
    ),
    ("string io.debezium.time.ZonedTime", "string", ["10:11:12.123Z", ""], [5]),
    ("string io.debezium.time.ZonedTime", "time", ["10:11:12.123Z"], ["10:11:12+02:00"]),
    ("string io.debezium.time.IsoDate", "date", ["2020-01-01Z", "2020-01-01"], ["2020-01-01+01:00", ""]),
    ("string io.debezium.time.Interval", "string", ["P1Y2M3DT4H5M6.7S"], []),
    ("int64 io.debezium.time.MicroDuration", "long", [-5], ["5"]),
    ("int32 io.debezium.time.Year", "int", [2026], [2**31]),
    ("string io.debezium.data.Uuid", "uuid", ["f79c3e09-677c-4bbd-a479-3f349cb785e7"], ["f79c3e09"]),
    ("string io.debezium.data.Uuid", "string", ["f79c3e09-677c-4bbd-a479-3f349cb785e7"], []),
    ("string io.debezium.data.Json", "string", ['{"a": 1}'], [{"a": 1}]),
    ("string io.debezium.data.EnumSet", "string", ["a,b", ""], []),
    ("bytes io.debezium.data.Bits", "binary", ["AQg=", ""], ["AQg"]),
    ("bytes", "fixed[2]", ["AQg="], ["AQ=="]),
    ("int16", "double", [-32768], ["x"]),
    ("int32", "decimal(10,2)", [5, -7], [10**9]),
    ("float", "double", [1.5, -0.25], ["x"]),
]


@pytest.mark.parametrize(("connect", "target", "good", "bad"), LOGICAL)
def test_logical_types_of_a_schema(connect, target, good, bad):
    type_, _, name = connect.partition(" ")
    schema = ConnectSchema(type_, name or None)
    both_ways(converter_by_schema(type_of(target), schema, DebeziumOptions()), good, bad)


def test_years_beyond_four_digits_have_a_sign():
    zoned = ConnectSchema("string", "io.debezium.time.ZonedTimestamp")
    converter = converter_by_schema(type_of("timestamptz"), zoned, DebeziumOptions())
    times = {
        "-0043-03-15T06:18:44.500000Z": -63_517_801_275_500_000,
        "0000-01-01T00:00:00Z": -62_167_219_200_000_000,
        "-4713-11-24T00:00:00Z": -210_866_803_200_000_000,
        "+10000-01-01T00:00:00.500000Z": 253_402_300_800_500_000,
        "+294247-01-10T04:00:54.775807Z": 2**63 - 1,
    }
    for text, micros in times.items():
        assert single(converter, text).cast(pa.int64()).to_pylist() == [micros]
    for text in ("+294247-01-10T04:00:54.775808Z", "10000-01-01T00:00:00Z", "-0043-02-30T00:00:00Z"):
        with pytest.raises(FieldError):
            single(converter, text)
    day = converter_by_schema(
        type_of("date"), ConnectSchema("string", "io.debezium.time.IsoDate"), DebeziumOptions()
    )
    assert single(day, "-4712-11-24Z").cast(pa.int32()).to_pylist() == [-2_440_222]


DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize(
    ("scale", "target", "good", "bad"),
    [
        (2, "decimal(12,2)", [1234, -1, 0, 10**12 - 1, -(10**12) + 1], [10**12]),
        (2, "decimal(38,2)", [BIG, -BIG, 2**63, -(2**63), 2**64, -(2**64) - 1, 255, 128, -128], [BIG + 1]),
        (0, "decimal(38,0)", [2**120, -(2**120)], [2**127, 2**200]),
        (4, "decimal(10,2)", [1234500, -100], [12345]),
        (1, "decimal(10,3)", [5], [10**8]),
        (-2, "decimal(10,0)", [5], []),
    ],
)
def test_decimals_as_bytes(scale, target, good, bad):
    schema = ConnectSchema("bytes", DECIMAL, parameters={"scale": str(scale)})
    converter = converter_by_schema(type_of(target), schema, DebeziumOptions())
    both_ways(converter, [unscaled(number) for number in good], [unscaled(number) for number in bad])
    both_ways(converter, [], ["", "!", 5])


def test_decimals_of_any_scale_become_text_or_a_decimal():
    values = [{"scale": 2, "value": unscaled(1234)}, {"scale": 0, "value": unscaled(-(2**70))}]
    schema = ConnectSchema("struct", "io.debezium.data.VariableScaleDecimal")
    text = converter_by_schema(type_of("string"), schema, DebeziumOptions())
    assert single(text, values[0]).to_pylist() == ["12.34"]
    assert single(text, {"scale": 9, "value": unscaled(1)}).to_pylist() == ["0.000000001"]
    both_ways(text, values, [{"scale": 2}, {"value": "AA=="}, "AA==", {"scale": 1.5, "value": "AA=="}])
    number = converter_by_schema(type_of("decimal(30,3)"), schema, DebeziumOptions())
    assert single(number, values[0]).to_pylist() == [Decimal("12.340")]
    both_ways(number, values, [{"scale": 4, "value": unscaled(1)}])


@pytest.mark.parametrize(
    ("connect", "target"),
    [("int64", "double"), ("double", "float"), ("string", "int"), ("boolean", "int"), ("bytes", "string")],
)
def test_what_may_lose_is_refused(connect, target):
    converter = converter_by_schema(type_of(target), ConnectSchema(connect), DebeziumOptions())
    value = {"int": 1, "float": 1.5, "double": 2, "string": "AA=="}[target]
    both_ways(converter, [], [value])


NANOS = DebeziumOptions(time_precision_mode="nanoseconds", decimal_handling_mode="string")


@pytest.mark.parametrize(
    ("target", "options", "good", "bad"),
    [
        ("timestamptz", DebeziumOptions(), ["2026-01-02T03:04:05Z"], [5]),
        ("time", DebeziumOptions(), [], [5]),
        ("time", DebeziumOptions(time_precision_mode="adaptive_time_microseconds"), [5], [-1]),
        ("timestamp_ntz", NANOS, [5_000], [5, INFINITY]),
        ("decimal(5,2)", NANOS, ["1.5", "-2"], ["1.234", "x"]),
        ("decimal(5,2)", DebeziumOptions(), [unscaled(150)], [unscaled(10**5)]),
        ("decimal(5,2)", DebeziumOptions(), [1.5], [1.234]),
        ("decimal(5,2)", DebeziumOptions(), [{"scale": 1, "value": unscaled(15)}], []),
        ("string", DebeziumOptions(), ["x", "1.5", '{"scale": 1}'], [{"scale": 1}, 5]),
        ("string", DebeziumOptions(), [{"scale": 1, "value": unscaled(15)}], [{"value": "AA=="}]),
        ("binary", DebeziumOptions(), ["AQg="], ["x"]),
        ("binary", DebeziumOptions(binary_handling_mode="hex"), ["01ff"], ["xy", "0"]),
        ("binary", DebeziumOptions(), [{"wkb": "AQg=", "srid": 1}], [{"srid": 1}]),
        ("array<decimal(5,2)>", DebeziumOptions(), [[unscaled(5), None], []], []),
        ("struct<d:date,b:binary>", DebeziumOptions(), [{"d": 5, "b": "AQg="}, {"d": None}], []),
    ],
)
def test_values_without_a_schema(target, options, good, bad):
    converter = converter_by_options(type_of(target), good or bad, options)
    both_ways(converter, good, bad)


@pytest.mark.parametrize(
    ("converter", "good", "bad"),
    [
        (TextWhole(type_of("int")), ["5", "-5", "007"], ["0x1F", "", "2147483648", "1.0", "+5", 5]),
        (TextWhole(type_of("long")), ["-9223372036854775808"], ["9223372036854775808"]),
        (TextReal(type_of("double")), ["1.5", "-0", "1e300", "0.1"], ["1e400", "", "x", 1.5]),
        (TextReal(type_of("float")), ["0.1", "16777217"], ["1e39"]),
        (TextTruth(), ["1", "0", "true", "false"], ["yes", "2", "", [], {}]),
        (NumberTruth(), [1, 0], [2, -1, "1"]),
        (Latin1(type_of("binary")), ["", "abc", "ÿ\u0000"], ["Ā", 5]),
    ],
)
def test_values_as_text(converter, good, bad):
    both_ways(converter, good, bad)


@pytest.mark.parametrize(
    ("target", "values", "bad"),
    [
        ("string", [{"$oid": "596e275826f08b2730779e1f"}], []),
        ("string", ["x"], []),
        ("long", [{"$numberLong": "12345678901"}], [{"$numberLong": "x"}]),
        ("int", [5], [{"$numberDouble": "5.0"}]),
        ("double", [{"$numberDouble": "1.5"}], [{"$numberDouble": "x"}]),
        ("decimal(10,2)", [{"$numberDecimal": "1.5"}], [{"$numberDecimal": "1.555"}]),
        ("timestamptz", [{"$date": 5}], []),
        ("timestamptz", [{"$date": "2026-01-02T03:04:05Z"}], []),
        ("timestamptz", [{"$date": {"$numberLong": "-5"}}], []),
        ("binary", [{"$binary": {"base64": "AQg=", "subType": "00"}}], [{"$binary": {"subType": "00"}}]),
        ("uuid", [{"$uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7"}], []),
        ("array<long>", [[{"$numberLong": "1"}, None]], []),
    ],
)
def test_extended_json(target, values, bad):
    schema = parse_ddl(f"a {target}")
    both_ways(document_converters(schema, [{"a": value} for value in values])["a"], values, bad)


def test_options_are_checked():
    assert DebeziumOptions.parse({"debezium.time-precision-mode": "connect"}).timestamp_nanos == 1_000_000
    with pytest.raises(InvalidOptionError, match="it can be precise, string, double"):
        DebeziumOptions.parse({"debezium.decimal-handling-mode": "exact"})
    with pytest.raises(InvalidOptionError, match=r"debezium\.decimal-handling-mode"):
        DebeziumOptions.parse({"debezium.decimal-handling": "string"})


ALLOWED = DebeziumOptions.parse({"debezium.lossy-conversion": "allow"})


@pytest.mark.parametrize(
    ("connect", "target", "values", "expected"),
    [
        (
            ConnectSchema("int64", "io.debezium.time.NanoTimestamp"),
            "timestamp",
            [1_999, -1, 2_000, None],
            [1, -1, 2, None],
        ),
        (ConnectSchema("int64", "io.debezium.time.NanoTime"), "time", [1_999, 0, None], [1, 0, None]),
        (ConnectSchema("int64"), "double", [1, (1 << 53) + 1], [1.0, float(1 << 53)]),
        (ConnectSchema("int32"), "float", [1, (1 << 24) + 1], [1.0, float(1 << 24)]),
        (ConnectSchema("double"), "float", [0.5, 0.1], [0.5, 0.10000000149011612]),
    ],
)
def test_digits_are_given_up_where_that_is_allowed(connect, target, values, expected):
    converter = converter_by_schema(type_of(target), connect, ALLOWED)
    both_ways(converter, values, [])
    assert plain(bulk(converter, values)) == repr(expected)


def unscaled_text(number):
    return base64.b64encode(number.to_bytes(8, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("number", "expected"),
    [(12345, "1.23"), (12350, "1.24"), (-12350, "-1.24"), (5, "0.00"), (50, "0.01"), (0, "0.00")],
)
def test_decimals_are_rounded_half_away_from_zero(number, expected):
    schema = ConnectSchema("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "4"})
    converter = converter_by_schema(type_of("decimal(9,2)"), schema, ALLOWED)
    both_ways(converter, [unscaled_text(number)], [])
    assert single(converter, unscaled_text(number)).to_pylist() == [Decimal(expected)]
    variable = converter_by_schema(
        type_of("decimal(9,2)"), ConnectSchema("struct", "io.debezium.data.VariableScaleDecimal"), ALLOWED
    )
    assert single(variable, {"scale": 4, "value": unscaled_text(number)}).to_pylist() == [Decimal(expected)]
    text = converter_by_schema(type_of("decimal(9,2)"), ConnectSchema("string"), ALLOWED)
    assert single(text, str(Decimal(number).scaleb(-4))).to_pylist() == [Decimal(expected)]


def test_what_is_no_matter_of_digits_is_refused_all_the_same():
    schema = ConnectSchema("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "4"})
    converter = converter_by_schema(type_of("decimal(4,2)"), schema, ALLOWED)
    both_ways(converter, [], [unscaled_text(1_000_000), "?", 7])
    zoned = ConnectSchema("string", "io.debezium.time.ZonedTimestamp")
    moment = converter_by_schema(type_of("timestamptz"), zoned, ALLOWED)
    assert single(moment, "2024-05-01T00:00:00.123456789Z") == single(moment, "2024-05-01T00:00:00.123456Z")
    with pytest.raises(FieldError):
        single(moment, "infinity")
    nanos = ConnectSchema("int64", "io.debezium.time.NanoTimestamp")
    with pytest.raises(FieldError):
        single(converter_by_schema(type_of("timestamp"), nanos, ALLOWED), 9_223_372_036_825_200_000)
    with pytest.raises(FieldError):
        single(converter_by_schema(type_of("timestamp"), nanos, DebeziumOptions()), 1_999)
    with pytest.raises(InvalidOptionError):
        DebeziumOptions.parse({"debezium.lossy-conversion": "maybe"})
