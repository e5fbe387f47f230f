"""Decimals near the ends of what 128 bits hold: every way of reading gives the number, or leaves it to the exact one."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlake.decode.avro.avro_columns import _of_text as avro_columns_of_text
from streamlake.decode.avro.avro_decoder import AvroDecoder
from streamlake.decode.avro.avro_schema import parse_avro_schema
from streamlake.decode.cdc.debezium.debezium_events import DebeziumEvents
from streamlake.decode.cdc.envelope_decoder import EnvelopeDecoder
from streamlake.decode.converters.decimal_converters import Unscaled, VariableScale
from streamlake.decode.converters.lossy_converters import RoundedDecimal
from streamlake.decode.json import template_columns
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.json.json_decoder import JsonDecoder
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import FieldError, parse_object, row
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import DecimalType
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

TYPES = [(38, 10), (38, 0), (38, 38), (37, 2), (18, 9), (9, 2)]
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,45})(\\.[0-9]{1,30})?([eE]-?[0-9]{1,3})?", fullmatch=True)
WRONG = [
    "703062027868387380695604230411442.5",
    "588401281.055550005005000e-33",
    "4e38",
    "59717633079061536536625392568231788544",
    "1" * 5000,
    "1" * 39,
    "12345678901234567890123456789.5",
    "1.0853167437788182e-178",
    "-5e-99",
    str(2**256 + 5),
    str(-(2**256) - 5),
    str(2**512 + 7),
    "0." + str(2**256 * 100),
    "0.0" + str(2**256) + "0",
    "7" * 500 + "e-12",
    "5E-099",
]


class Bad(Exception):
    pass


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(template_columns, "LEAST", 1)


def exact(text, schema):
    """What the record's number is in the column, None where it is refused."""
    try:
        return row(parse_object(text), schema.fields, JsonOptions())["a"]
    except ValueError:
        return None


def read(text, schema):
    """The same through the decoder, with a good record before and behind."""
    records = [b'{"a": 0}', text, b'{"a": 0}']
    try:
        columns = JsonDecoder(schema, JsonOptions()).decode(
            pa.array(records, pa.binary()), lambda at, reason: Bad(at, reason)
        )
    except Bad as error:
        if error.args[0] != 1:
            raise
        return None
    columns[0].validate(full=True)
    return columns[0].to_pylist()[1]


def check(number, precision, scale):
    for more in ("", ", l array<int>"):
        schema = parse_ddl(f"a decimal({precision},{scale}){more}")
        for form in (number, f'"{number}"'):
            text = b'{"a": %s}' % form.encode()
            assert read(text, schema) == exact(text, schema), (text, more)


@pytest.mark.parametrize(("precision", "scale"), TYPES)
@pytest.mark.parametrize("number", WRONG)
def test_what_grows_beyond_128_bits(number, precision, scale):
    check(number, precision, scale)


@given(NUMBERS, st.sampled_from(TYPES))
@example("1e38", (38, 10))
def test_any_number(number, type_):
    check(number, *type_)


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38), st.sampled_from(TYPES))
@example(5 * 10**37, 0, (38, 10))
@example(30404511932603680076097169265925081608, -21, (38, 38))
def test_unscaled_numbers(unscaled, scale, type_):
    """Connect's decimals, whose scale is the schema's, in a column of another one."""
    table = parse_ddl("a decimal({},{})".format(*type_))
    field = {
        "field": "a",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": str(scale)},
        "optional": True,
    }
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": [field]}]}
    size = unscaled.bit_length() // 8 + 1
    value = base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    events = [
        {
            "schema": schema,
            "payload": {"after": {"a": one}, "op": "c", "source": {"connector": "postgresql", "lsn": 1}},
        }
        for one in ["AA==", value, *["AA=="] * 20]
    ]
    found = EnvelopeDecoder(table, DebeziumEvents(table)).decode(
        raw_batch([{"value": json.dumps(event)} for event in events]), keep_rejects=True
    )
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    expected = exact(b'{"a": "%s"}' % format(number, "f").encode(), table)
    if expected is None:
        assert [one.record for one in found.rejects] == [1]
    else:
        assert not found.rejects
        assert found.rows.column("a")[1].as_py() == expected
    assert found.rows.column("a").type == arrow_type(table.fields[0].type)


def test_identifiers_are_no_exponents():
    """What looks like one inside of texts does not keep records from being read together."""
    schema = parse_ddl("u string, a decimal(9,2), l array<int>")
    texts = [
        "12345678-123e-4567-89ab-00000000000a",
        "1234567e-1234-1234-1234-00000000000a",
        "x5e-10",
        "-7e-11y",
    ]
    records = [json.dumps({"a": 1.5, "u": text}).encode() for text in texts * 25]
    columns = JsonColumns(schema.fields, JsonOptions(), strict_names=False).read(
        pa.array(records, pa.binary())
    )
    assert columns[0].to_pylist() == texts * 25
    assert columns[1].to_pylist() == [Decimal("1.50")] * 100
    with pytest.raises(NotBulkError) as error:
        JsonColumns(schema.fields, JsonOptions(), strict_names=False).read(
            pa.array([*records, b'{"a": 5e-178}'], pa.binary())
        )
    assert error.value.row == 100


UNSCALED = st.one_of(
    st.integers(-(2**127), 2**127 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.builds(lambda turns, digits: -(-turns * 2**128 // 10**digits), st.integers(1, 3), st.integers(1, 38)),
)
ANY_TYPE = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))


def in_avro(schema, column, value):
    """What the Avro decoder makes of one value, None where it is refused."""
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}]}
    plain = {"type": "record", "name": "R", "fields": [{"name": "a", "type": schema["type"]}]}
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"a": value})
    decoder = AvroDecoder(column, parse_avro_schema(json.dumps(record), "t"))
    try:
        (found,) = decoder.decode(pa.array([out.getvalue()], pa.binary()), Bad)
    except Bad:
        return None
    found.validate(full=True)
    return found[0].as_py()


def number_of(unscaled, scale):
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


@settings(deadline=None)
@given(UNSCALED, st.integers(0, 38), ANY_TYPE)
@example(3402823669209384635, 0, (38, 20))
@example(10**18, 0, (38, 30))
@example(-(2**127), 0, (38, 0))
@example(-(2**127), 2, (10, 2))
def test_numbers_of_avro(unscaled, scale, type_):
    table = parse_ddl("a decimal({},{})".format(*type_))
    size = unscaled.bit_length() // 8 + 1
    data = unscaled.to_bytes(size, "big", signed=True)
    decimals = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    text = format(number_of(unscaled, scale), "f")
    assert in_avro(decimals, table, data) == exact(b'{"a": "%s"}' % text.encode(), table)
    if -(2**63) <= unscaled < 2**63:
        assert in_avro({"type": "long"}, table, unscaled) == exact(b'{"a": %d}' % unscaled, table)


@settings(deadline=None)
@given(UNSCALED, st.integers(0, 38), ANY_TYPE)
@example(-(2**127), 0, (38, 0))
@example(-(2**127), 2, (10, 2))
@example(3402823669209384635, 0, (38, 20))
@example(10**28 + 1, 0, (29, 0))
def test_connects_decimals_in_bulk(unscaled, scale, type_):
    """With and without the scale beside them, exact or with digits given up."""
    column = parse_ddl("a decimal({},{})".format(*type_)).fields[0].type
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    number = number_of(unscaled, scale)
    table = parse_ddl("a decimal({},{})".format(*type_))
    wanted = exact(b'{"a": "%s"}' % format(number, "f").encode(), table)
    variable = pa.StructArray.from_arrays(
        [pa.array([scale], pa.int32()), pa.array([data], pa.binary())], names=["scale", "value"]
    )
    for converter, array in (
        (Unscaled(column, scale), pa.array([data], pa.binary())),
        (VariableScale(column), variable),
    ):
        try:
            found = converter.column(array)[0].as_py()
        except NotBulkError:
            found = None
        assert found == wanted
    rounded = RoundedDecimal(Unscaled(column, scale))
    try:
        in_bulk = rounded.column(pa.array([data], pa.binary()))[0].as_py()
    except NotBulkError:
        return
    assert in_bulk == rounded.value(base64.b64encode(data).decode(), "a")


@pytest.mark.parametrize("number", [1e38, 1e25, 123456789012345.5, 2.0**100, -1e20, 1e-30])
def test_doubles_of_change_events_in_avro(number):
    column = parse_ddl("a decimal(38,20)").fields[0].type
    try:
        found = avro_columns_of_text(pa.array([number], pa.float64()).cast(pa.string()), column)[0].as_py()
    except NotBulkError:
        return
    assert found == Decimal(str(number))


def test_numbers_as_text_are_told_the_option_that_reads_them():
    with pytest.raises(FieldError) as refused:
        Unscaled(DecimalType(10, 2), 2).value("0.00", "after.amount")
    assert str(refused.value) == (
        "'after.amount' is decimal(10, 2), but found text \"0.00\": bytes are written in base64 with padding; if the "
        "connector sends numbers as text, set debezium.decimal-handling-mode=string"
    )
