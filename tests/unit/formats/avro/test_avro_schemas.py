"""Avro schemas and columns' bytes of Iceberg types, held against fastavro as an independent reader."""

from __future__ import annotations

import io
import json
import uuid
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.avro.avro_columns import encoded_rows
from streamlake.formats.avro.avro_file_schema import AvroFileSchema
from streamlake.formats.avro.avro_schemas import avro_name, decimal_size, record_schema
from streamlake.spec.types.data_types import GeometryType, NestedField, StructType, VariantType
from streamlake.spec.types.ddl import parse_ddl


@pytest.mark.parametrize("precision", range(1, 39))
def test_decimal_sizes_are_the_smallest_that_hold_the_precision(precision: int) -> None:
    largest, size = 10**precision - 1, decimal_size(precision)
    for number in (largest, -largest):
        number.to_bytes(size, "big", signed=True)
    with pytest.raises(OverflowError):
        largest.to_bytes(size - 1, "big", signed=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain_1", "plain_1"),
        ("_x", "_x"),
        ("9lives", "_9lives"),
        ("a.b", "a_x2Eb"),
        ("a b-c", "a_x20b_x2Dc"),
        ("\u00e4\u65e5", "\u00e4\u65e5"),
        ("1", "_1"),
        ("-", "_x2D"),
        ("a\U0001f600", "a_xD83D_xDE00"),
    ],
)
def test_names_as_iceberg_replaces_them(name: str, expected: str) -> None:
    assert avro_name(name) == expected


def test_every_type_is_read_by_fastavro() -> None:
    schema = parse_ddl(
        "a boolean, b int not null, c long, d float, e double, f decimal(20,3), g date, h timestamp, i timestamptz, "
        "j string, k uuid, l fixed[4], m binary, n array<string>, o map<string,int>, p map<int,array<long>>, "
        "q struct<x:decimal(20,3),y:uuid>, r timestamp_ns, s time"
    )
    values = (
        True,
        -5,
        2**40,
        1.5,
        -0.1,
        Decimal("-12.345"),
        -1,
        1_000_000,
        -1_000_000,
        "\u65e5",
        uuid.UUID(int=9).bytes,
        b"1234",
        b"",
        ["a", None],
        [("k", 1), ("n", None)],
        [(1, [2, None]), (3, [])],
        {"x": Decimal("7.000"), "y": None},
        123,
        1,
    )
    avro = fastavro.parse_schema(json.loads(json.dumps(record_schema(schema.struct, "table"))))
    columns = [
        pa.array([value, 0 if part.name == "b" else None], type=part.type)
        for value, part in zip(values, schema_to_arrow(schema), strict=True)
    ]
    full, empty = encoded_rows(columns, schema.struct).to_pylist()
    read: Any = fastavro.schemaless_reader(io.BytesIO(full), avro, None)
    assert read["a"] is True
    assert (read["b"], read["c"], read["d"], read["e"]) == (-5, 2**40, 1.5, -0.1)
    assert read["f"] == Decimal("-12.345")
    assert read["g"] == date(1969, 12, 31)
    assert read["h"].replace(tzinfo=None) == datetime(1970, 1, 1, 0, 0, 1)
    assert read["i"] == datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    assert (read["j"], read["l"], read["m"]) == ("\u65e5", b"1234", b"")
    assert read["k"] in (uuid.UUID(int=9), uuid.UUID(int=9).bytes)
    assert (read["n"], read["o"]) == (["a", None], {"k": 1, "n": None})
    assert read["p"] == [{"key": 1, "value": [2, None]}, {"key": 3, "value": []}]
    assert read["q"] == {"x": Decimal("7.000"), "y": None}
    nothing = fastavro.schemaless_reader(io.BytesIO(empty), avro, None)
    assert nothing == {**dict.fromkeys(read), "b": 0}


@pytest.mark.parametrize("type_", [VariantType(), GeometryType()])
def test_types_without_avro_form(type_: VariantType) -> None:
    struct = StructType((NestedField(1, "x", type_),))
    with pytest.raises(FeatureUnsupportedError, match=str(type_)):
        record_schema(struct, "t")


@pytest.mark.parametrize("unscaled", [10**28 + 1, -(10**28) - 1, 10**38 - 1, 1 - 10**38, 0, -1])
@pytest.mark.parametrize("scale", [0, 7, 38])
def test_decimals_that_others_write_as_bytes_keep_all_digits(unscaled: int, scale: int) -> None:
    stored = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": stored}]}
    raw = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    batch = AvroFileSchema.parse(json.dumps(schema), "a.avro").batch([{"d": raw}])
    (found,) = batch.column("d").to_pylist()
    assert found.as_tuple() == Decimal(f"{unscaled}E-{scale}").as_tuple()
