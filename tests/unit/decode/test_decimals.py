"""Decimals near the ends of what 128 bits hold: every way of reading gives the number, or leaves it to the exact one."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamlake.decode import shaped_columns
from streamlake.decode.debezium_events import DebeziumEvents
from streamlake.decode.envelope_decoder import EnvelopeDecoder
from streamlake.decode.json_columns import JsonColumns
from streamlake.decode.json_decoder import JsonDecoder
from streamlake.decode.json_options import JsonOptions
from streamlake.decode.json_values import parse_object, row
from streamlake.decode.text_columns import NotBulkError
from streamlake.formats.arrow_schema import arrow_type
from streamlake.spec.ddl import parse_ddl
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
    monkeypatch.setattr(shaped_columns, "LEAST", 1)


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
    assert "in row 100" in str(error.value.__cause__)
