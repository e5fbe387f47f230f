"""Iceberg schemas <-> Arrow schemas: field ids, every type, what is refused and why."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlake.errors import FeatureUnsupportedError, SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import (
    arrow_type,
    parquet_schema,
    schema_from_arrow,
    schema_to_arrow,
)
from streamlake.spec.types.data_types import (
    DecimalType,
    FixedType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
    VariantType,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema

ALL = parse_ddl(
    "a boolean, b int, c long not null, d float, e double, f decimal(38,10), g date, h time, i timestamp, "
    "j timestamptz, k timestamp_ns, l timestamptz_ns, m string, n fixed[5], o binary, "
    "p struct<x:int,y:struct<z:array<string>>>, q array<struct<w:int>>, r map<string,array<long>>, s map<int,uuid>"
)


def test_there_and_back() -> None:
    schema = parse_ddl(
        "a boolean, b int, c long not null, d float, e double, f decimal(38,10), g date, h time, i timestamp, "
        "j timestamptz, k timestamp_ns, l timestamptz_ns, m string, n fixed[5], o binary, "
        "p struct<x:int not null,y:struct<z:array<string>>>, q array<struct<w:int>>, r map<string,array<long>>"
    )
    back = schema_from_arrow(schema_to_arrow(schema))
    assert back.fields == schema.fields
    assert schema_from_arrow(schema_to_arrow(schema, field_ids=False)).fields == schema.fields


def _ids(fields: list[pa.Field]) -> list[int]:
    found = []
    for part in fields:
        found.append(int(part.metadata[b"PARQUET:field_id"]))
        type_ = part.type
        if pa.types.is_struct(type_):
            found += _ids([type_.field(at) for at in range(type_.num_fields)])
        elif pa.types.is_list(type_):
            found += _ids([type_.value_field])
        elif pa.types.is_map(type_):
            found += _ids([type_.key_field, type_.item_field])
    return found


def test_every_field_carries_its_id() -> None:
    arrow = schema_to_arrow(ALL)
    assert _ids(list(arrow)) == list(ALL.fields_by_id)
    assert not arrow.field("c").nullable
    assert arrow.field("b").nullable
    assert all(part.metadata is None for part in schema_to_arrow(ALL, field_ids=False))


def test_parquet_files_have_field_ids_and_logical_types(tmp_path: Path) -> None:
    schema = parse_ddl("u uuid, us array<uuid>, m map<uuid,int>, f fixed[16], d decimal(9,2), j timestamptz")
    raw = uuid.UUID(int=7).bytes
    rows = pa.Table.from_pylist(
        [{"u": raw, "us": [raw, None], "m": [(raw, 1)], "f": raw, "d": Decimal("1.25"), "j": 0}, {}],
        schema=schema_to_arrow(schema),
    )
    path = tmp_path / "f.parquet"
    stored = parquet_schema(schema)
    pq.write_table(rows.cast(stored), path, store_schema=False)
    text = str(pq.ParquetFile(path).schema)
    assert text.count("(UUID)") == 3
    assert "fixed_len_byte_array(16) field_id=4 f;" in text
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in text
    for field_id in schema.fields_by_id:
        assert f"field_id={field_id} " in text
    read = pq.read_table(path).cast(schema_to_arrow(schema))
    assert read.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("type_", [VariantType(), GeometryType(), GeographyType()])
def test_types_that_are_neither_read_nor_written(type_: VariantType) -> None:
    with pytest.raises(FeatureUnsupportedError, match=str(type_)):
        schema_to_arrow(Schema((NestedField(1, "x", type_),)))


def test_uuid_is_bytes_in_memory() -> None:
    assert arrow_type(UUIDType()) == pa.binary(16)
    (part,) = schema_from_arrow(pa.schema([pa.field("u", pa.uuid())])).fields
    assert part.type == UUIDType()


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.int8(), "int"),
        (pa.int16(), "int"),
        (pa.uint8(), "int"),
        (pa.uint16(), "int"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20, 0)"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(7), "fixed[7]"),
        (pa.date64(), "date"),
        (pa.time32("s"), "time"),
        (pa.time32("ms"), "time"),
        (pa.timestamp("s"), "timestamp"),
        (pa.timestamp("ms", "Europe/Berlin"), "timestamptz"),
        (pa.timestamp("ns"), "timestamp_ns"),
        (pa.timestamp("ns", "+02:00"), "timestamptz_ns"),
        (pa.decimal32(5, 2), "decimal(5, 2)"),
        (pa.decimal64(18, 0), "decimal(18, 0)"),
        (pa.decimal256(38, 38), "decimal(38, 38)"),
        (pa.decimal128(5, -3), "decimal(8, 0)"),
        (pa.decimal128(3, 5), "decimal(5, 5)"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.dictionary(pa.int8(), pa.large_binary()), "binary"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.list_(pa.int32(), 3), "list<int>"),
        (pa.large_list(pa.int8()), "list<int>"),
        (pa.list_view(pa.string()), "list<string>"),
        (pa.large_list_view(pa.string()), "list<string>"),
        (pa.map_(pa.string(), pa.uint8()), "map<string, int>"),
        (pa.bool8(), "boolean"),
        (pa.json_(), "string"),
    ],
)
def test_types_that_arrive(arrow: pa.DataType, expected: str) -> None:
    (part,) = schema_from_arrow(pa.schema([("x", arrow)])).fields
    assert str(part.type) == expected


@pytest.mark.parametrize("arrow", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_the_largest_unsigned_value_fits(arrow: pa.DataType) -> None:
    (part,) = schema_from_arrow(pa.schema([("x", arrow)])).fields
    largest = 2**arrow.bit_width - 1
    assert int(pa.array([largest], arrow).cast(arrow_type(part.type))[0].as_py()) == largest


@pytest.mark.parametrize(
    ("arrow", "advice"),
    [
        (pa.null(), "always null"),
        (pa.time64("ns"), "microseconds"),
        (pa.duration("us"), "int64"),
        (pa.month_day_nano_interval(), "three integers"),
        (pa.decimal256(39, 0), "38 digits"),
        (pa.decimal128(38, -1), "38 digits"),
        (pa.dense_union([pa.field("a", pa.int32())]), "cast it"),
        (pa.opaque(pa.binary(), "t", "v"), "storage type"),
    ],
)
def test_types_without_a_lossless_home(arrow: pa.DataType, advice: str) -> None:
    nested = pa.struct([pa.field("in", pa.list_(arrow))])
    with pytest.raises(FeatureUnsupportedError, match=advice) as caught:
        schema_from_arrow(pa.schema([("x", nested)]))
    assert "'x.in.element'" in str(caught.value)


def test_nanoseconds_need_version_3() -> None:
    arrow = pa.schema([("x", pa.timestamp("ns"))])
    with pytest.raises(FeatureUnsupportedError, match="version 3"):
        schema_from_arrow(arrow, format_version=2)
    assert str(schema_from_arrow(arrow, format_version=3).fields[0].type) == "timestamp_ns"


def test_fresh_ids_go_level_by_level() -> None:
    arrow = pa.schema(
        [
            pa.field("a", pa.struct([pa.field("b", pa.int32()), pa.field("c", pa.list_(pa.int64()))])),
            pa.field("d", pa.map_(pa.string(), pa.int64()), metadata={"PARQUET:field_id": "99"}),
            pa.field("e", pa.string(), nullable=False, metadata={"doc": "why"}),
        ]
    )
    schema = schema_from_arrow(arrow)
    assert {name: field_id for field_id, name in schema.names_by_id.items()} == {
        "a": 1,
        "d": 2,
        "e": 3,
        "a.b": 4,
        "a.c": 5,
        "a.c.element": 6,
        "d.key": 7,
        "d.value": 8,
    }
    assert schema.fields[2] == NestedField(3, "e", StringType(), True, "why")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("x", pa.int32()), ("x", pa.int64())], "'x' appears twice"),
        ([("", pa.int32())], "no name"),
        ([("s", pa.struct([("y", pa.int32()), ("y", pa.int32())]))], r"'s\.y' appears twice"),
    ],
)
def test_names_that_cannot_be_columns(fields: list[tuple[str, pa.DataType]], message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        schema_from_arrow([pa.field(name, type_) for name, type_ in fields])


def test_scalars_of_the_contract() -> None:
    assert arrow_type(DecimalType(9, 2)) == pa.decimal128(9, 2)
    assert arrow_type(FixedType(3)) == pa.binary(3)
    assert (arrow_type(IntegerType()), arrow_type(LongType())) == (pa.int32(), pa.int64())
