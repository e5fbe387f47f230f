"""Connect schemas to Iceberg schemas, as tables are created for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from streamlake.decode.cdc.debezium.debezium_converters import converters_by_schema
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.converters.converter import Refused
from streamlake.decode.values.connect_schema import ConnectSchema, iceberg_schema_of, iceberg_type_of
from streamlake.spec.types.ddl import parse_ddl

CASE = Path(__file__).parents[3] / "cases" / "envelopes" / "debezium_with_schema.yaml"


def sample():
    row = yaml.safe_load(CASE.read_text())["schemas"][0]
    return ConnectSchema.of(row)


def test_schema_of_a_row_with_every_logical_type():
    found = iceberg_schema_of(sample(), format_version=3)
    expected = parse_ddl(
        "id long not null, d date, t time, mt time, ts timestamp_ntz, mts timestamp_ntz, nts timestamp_ns, z timestamptz, "
        "cd date, ct time, cts timestamp_ntz, n decimal(12,2), v string, vd string, u uuid, j string, e string, b binary, "
        "g binary, p binary, i string, md long, y int, a array<decimal(38,1)>, h map<string,string>"
    )
    assert [(part.name, str(part.type).split("<")[0], part.required) for part in found.fields] == [
        (part.name, str(part.type).split("<")[0], part.required) for part in expected.fields
    ]
    assert len(found.fields_by_id) == len(expected.fields_by_id)
    assert str(iceberg_schema_of(sample(), format_version=2).find("nts").type) == "long"


def test_every_type_that_is_chosen_can_be_read():
    for version in (2, 3):
        schema = iceberg_schema_of(sample(), format_version=version)
        converters = converters_by_schema(schema, sample(), DebeziumOptions())
        assert converters.keys() == set(schema.column_names)
        assert not any(isinstance(converter, Refused) for converter in converters.values())


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"scale": "2", "connect.decimal.precision": "12"}, "decimal(12, 2)"),
        ({"scale": "2"}, "decimal(38, 2)"),
        ({"scale": "-2", "connect.decimal.precision": "5"}, "decimal(7, 0)"),
        ({"scale": "5", "connect.decimal.precision": "3"}, "decimal(5, 5)"),
        ({"scale": "0", "connect.decimal.precision": "65"}, "string"),
        ({"scale": "40", "connect.decimal.precision": "45"}, "string"),
    ],
)
def test_decimals(parameters, expected):
    connect = ConnectSchema("bytes", "org.apache.kafka.connect.data.Decimal", parameters=parameters)
    assert str(iceberg_type_of(connect)) == expected


@pytest.mark.parametrize(
    "found", [None, [], {"type": 5}, {"type": "int128"}, {"type": "struct", "fields": [{"type": "int8"}]}]
)
def test_what_is_no_schema_is_refused(found):
    with pytest.raises(ValueError, match="the record's schema"):
        ConnectSchema.of(found)
    with pytest.raises(ValueError, match="rows need a struct"):
        iceberg_schema_of(ConnectSchema("string"))
