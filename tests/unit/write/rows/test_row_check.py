"""The row check: alignment by name, lossless conversion, and errors that name column and row."""

from __future__ import annotations

import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamlake.errors import FeatureUnsupportedError, SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.data_types import (
    FixedType,
    LongType,
    NestedField,
    StringType,
    TimeType,
    VariantType,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.write.rows.row_check import RowCheck


def aligned(ddl: str | Schema, rows: pa.Table) -> pa.Table:
    schema = parse_ddl(ddl) if isinstance(ddl, str) else ddl
    found = RowCheck(schema, "lake/t").align(rows)
    assert found.schema.equals(schema_to_arrow(schema), check_metadata=True)
    found.validate(full=True)
    return found


def refused(ddl: str | Schema, rows: pa.Table, match: str) -> None:
    with pytest.raises(SchemaMismatchError, match=match) as raised:
        aligned(ddl, rows)
    assert "lake/t" in str(raised.value)


def test_rows_that_fit_are_not_copied() -> None:
    rows = pa.table({"id": pa.array([1, 2]), "name": ["a", "b"]})
    found = aligned("id long, name string", rows)
    for name in rows.column_names:
        assert found[name].chunk(0).buffers()[1].address == rows[name].chunk(0).buffers()[1].address


def test_columns_are_found_by_name() -> None:
    found = aligned("id long, name string", pa.table({"name": ["a"], "id": pa.array([1])}))
    assert found.to_pylist() == [{"id": 1, "name": "a"}]


def test_an_optional_column_may_be_absent() -> None:
    found = aligned("id long, s struct<a:int>, l array<int>", pa.table({"id": pa.array([1, 2])}))
    assert found.to_pylist() == [{"id": 1, "s": None, "l": None}, {"id": 2, "s": None, "l": None}]


def test_a_write_default_fills_an_absent_column() -> None:
    schema = Schema(
        (
            NestedField(1, "id", LongType()),
            NestedField(2, "kind", StringType(), required=True, write_default="new"),
        )
    )
    assert aligned(schema, pa.table({"id": pa.array([1])})).to_pylist() == [{"id": 1, "kind": "new"}]


def test_absent_unknown_and_repeated_columns() -> None:
    refused("id long not null, name string", pa.table({"name": ["a"]}), "lack the column 'id'")
    refused(
        "id long, category string",
        pa.table({"id": pa.array([1]), "catgory": ["a"]}),
        "'catgory'.*Did you mean 'category'",
    )
    refused("id long", pa.table({"id": pa.array([1]), "zzz": ["a"]}), "'zzz'.*columns are id")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    refused("id long, other long", twice, "'id' twice")


WIDENED: list[tuple[str, pa.Array, list[Any]]] = [
    ("int", pa.array([1, -1], pa.int8()), [1, -1]),
    ("int", pa.array([1, None], pa.uint16()), [1, None]),
    ("int", pa.array([2**31 - 1], pa.int64()), [2**31 - 1]),
    ("long", pa.array([1], pa.int32()), [1]),
    ("long", pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    ("double", pa.array([1.5], pa.float32()), [1.5]),
    ("double", pa.array([2**53], pa.int64()), [float(2**53)]),
    ("decimal(20,4)", pa.array([Decimal("1.25")], pa.decimal128(9, 2)), [Decimal("1.2500")]),
    ("decimal(9,1)", pa.array([Decimal("1.20")], pa.decimal128(9, 2)), [Decimal("1.2")]),
    ("decimal(3,2)", pa.array([Decimal("1.25")], pa.decimal256(50, 2)), [Decimal("1.25")]),
    ("decimal(12,2)", pa.array([7], pa.int64()), [Decimal("7.00")]),
    ("string", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("string", pa.array(["a", None], pa.string_view()), ["a", None]),
    ("string", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    ("binary", pa.array([b"a"], pa.large_binary()), [b"a"]),
    ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    ("long", pa.nulls(2), [None, None]),
    ("struct<a:int>", pa.nulls(1), [None]),
    ("boolean", pa.array([True, None]), [True, None]),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "array", "expected"), WIDENED, ids=lambda value: str(value)[:30])
def test_lossless_conversions(ddl: str, array: pa.Array, expected: list[Any]) -> None:
    assert aligned(f"x {ddl}", pa.table({"x": array}))["x"].to_pylist() == expected


def test_times_and_timestamps() -> None:
    micros = [1_700_000_000_123_456, -1, None]
    for unit in ("us", "ns"):
        source = (
            pa.array(micros, pa.int64())
            .cast(pa.timestamp("us", "Europe/Berlin"))
            .cast(pa.timestamp(unit, "Europe/Berlin"))
        )
        found = aligned("x timestamptz", pa.table({"x": source}))["x"]
        assert found.cast(pa.int64()).to_pylist() == micros
    seconds = pa.array([86_399]).cast(pa.int32()).cast(pa.time32("s"))
    time = Schema((NestedField(1, "x", TimeType()),))
    assert aligned(time, pa.table({"x": seconds}))["x"].cast(pa.int64()).to_pylist() == [86_399_000_000]
    millis = pa.array([86_400_000], pa.int64()).cast(pa.date64())
    assert aligned("x date", pa.table({"x": millis}))["x"].cast(pa.int32()).to_pylist() == [1]


def test_uuids_from_text_bytes_and_extension() -> None:
    values = [uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), None, uuid.UUID(int=0)]
    raw = [value and value.bytes for value in values]
    arrays = [
        pa.array([value and str(value) for value in values]),
        pa.array([value and str(value).upper() for value in values], pa.large_string()),
        pa.array([value and value.hex for value in values]),
        pa.array(raw, pa.binary()),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array(raw, pa.binary(16))),
    ]
    for array in arrays:
        assert aligned("x uuid", pa.table({"x": array}))["x"].to_pylist() == raw
        assert aligned("x uuid", pa.table({"x": array.slice(1)}))["x"].to_pylist() == raw[1:]


def test_fixed_from_binary() -> None:
    schema = Schema((NestedField(1, "x", FixedType(3)),))
    assert aligned(schema, pa.table({"x": pa.array([b"abc", None])}))["x"].to_pylist() == [b"abc", None]
    refused(
        schema,
        pa.table({"x": pa.array([b"abc", b"ab"])}),
        r"column 'x', row 1: has a value of 2 bytes.*fixed\[3\]",
    )


REFUSED: list[tuple[str, pa.Array, str]] = [
    ("long", pa.array(["1"]), "has the type string, the table's is long"),
    ("string", pa.array([1]), "has the type int64"),
    ("string", pa.array([b"x"]), "has the type binary"),
    ("float", pa.array([1.5]), "has the type double"),
    ("long", pa.array([1.0]), "has the type double"),
    ("boolean", pa.array([1]), "has the type int64"),
    ("date", pa.array([1]), "has the type int64"),
    ("long", pa.array([1]).cast(pa.timestamp("us")), "has the type timestamp"),
    ("timestamp_ntz", pa.array([1]).cast(pa.timestamp("us", "UTC")), "cast it to timestamp_ntz"),
    ("timestamptz", pa.array([1]).cast(pa.timestamp("us")), "cast it to timestamp$"),
    ("uuid", pa.array([1]), "has the type int64"),
    ("struct<a:int>", pa.array([1]), "has the type int64"),
    ("array<int>", pa.array([{"a": 1}]), "has the type struct"),
    ("map<string,int>", pa.array([[1]]), "has the type list"),
    ("int", pa.array([1, 2**31], pa.int64()), "row 1: has the value 2147483648 .*does not fit the table's type int"),
    ("double", pa.array([1, 2**53 + 1], pa.int64()), "row 1: has the value 9007199254740993"),
    ("decimal(9,1)", pa.array([Decimal("1.20"), Decimal("1.25")], pa.decimal128(9, 2)), "row 1: has the value"),
    ("decimal(3,2)", pa.array([Decimal("123.45")], pa.decimal128(9, 2)), "row 0: has the value"),
    ("decimal(3,2)", pa.array([1, 10], pa.int64()), "row 1: has the value"),
    ("uuid", pa.array(["f79c3e09-677c-4bbd-a479-3f349cb785e7", "oops"]), "row 1: has the value 'oops', which is not a UUID"),
    ("uuid", pa.array(["g" * 32]), "which is not a UUID"),
    ("uuid", pa.array([b"abc"]), "row 0: has a value of 3 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "array", "message"), REFUSED, ids=lambda value: str(value)[:30])
def test_lossy_conversions_are_refused(ddl: str, array: pa.Array, message: str) -> None:
    refused(f"x {ddl}", pa.table({"x": array}), f"column 'x'.*{message}")


def test_row_numbers_count_over_chunks_and_tables() -> None:
    check = RowCheck(parse_ddl("id int not null"), "t")
    check.align(pa.table({"id": pa.array([1, 2, 3], pa.int32())}))
    chunks = [pa.array([1, 2], pa.int32()), pa.array([3, None], pa.int32())]
    with pytest.raises(
        SchemaMismatchError, match=r"column 'id', row 6: the value is null and the table requires one"
    ):
        check.align(pa.table({"id": pa.chunked_array(chunks)}))
    wide = [pa.array([1, 2]), pa.array([3, 2**40])]
    with pytest.raises(SchemaMismatchError, match=r"column 'id', row 6: has the value 1099511627776"):
        check.align(pa.table({"id": pa.chunked_array(wide)}))


NESTED = "s struct<a: int not null, b: struct<c: string not null>>, l array<struct<d: long not null>>, m map<string, struct<e: int not null>>"


def nested_rows(**changed: Any) -> pa.Table:
    row = {"s": {"a": 1, "b": {"c": "x"}}, "l": [{"d": 1}, None], "m": [("k", {"e": 1})]}
    plain = parse_ddl(NESTED.replace(" not null", ""))
    rows = [row, {"s": None, "l": None, "m": None}, {**row, **changed}]
    return pa.Table.from_pylist(rows, schema=schema_to_arrow(plain, field_ids=False))


def test_nested_columns_get_the_tables_field_ids() -> None:
    rows = nested_rows()
    found = aligned(NESTED, rows)
    assert found.to_pylist() == rows.to_pylist()
    assert aligned(NESTED, rows.slice(1)).to_pylist() == rows.to_pylist()[1:]


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"s": {"a": None, "b": None}}, "s.a"),
        ({"s": {"a": 1, "b": {"c": None}}}, "s.b.c"),
        ({"l": [{"d": 1}, {"d": None}]}, "l.element.d"),
        ({"m": [("k", {"e": 1}), ("j", {"e": None})]}, "m.value.e"),
    ],
)
def test_nulls_in_required_parts(changed: dict[str, Any], path: str) -> None:
    refused(NESTED, nested_rows(**changed), f"column '{path}', row 2: the value is null")
    with pytest.raises(SchemaMismatchError, match=f"column '{path}', row 1: the value is null"):
        aligned(NESTED, nested_rows(**changed).slice(1))


def test_required_elements() -> None:
    ddl = Schema(parse_ddl("l array<int>").fields)
    from dataclasses import replace

    from streamlake.spec.types.data_types import IntegerType, ListType

    schema = replace(ddl, fields=(NestedField(1, "l", ListType(2, IntegerType(), element_required=True)),))
    assert aligned(schema, pa.table({"l": [[1], None, []]})).to_pylist() == [
        {"l": [1]},
        {"l": None},
        {"l": []},
    ]
    refused(schema, pa.table({"l": [[1], [2, None]]}), "column 'l.element', row 1")


def test_nested_values_are_converted_and_errors_name_the_row() -> None:
    ddl = "s struct<a:long, b:string>, l array<int>, m map<string,int>"
    maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.large_string(), pa.int64()))
    lists = pa.array([[1], None, [2, 3]], pa.large_list(pa.int64()))
    structs = pa.array(
        [{"b": "x", "a": 1}, None, {"b": None, "a": 2}],
        pa.struct([("b", pa.large_string()), ("a", pa.int32())]),
    )
    found = aligned(ddl, pa.table({"s": structs, "l": lists, "m": maps}))
    assert found.to_pylist() == [
        {"s": {"a": 1, "b": "x"}, "l": [1], "m": [("a", 1)]},
        {"s": None, "l": None, "m": None},
        {"s": {"a": 2, "b": None}, "l": [2, 3], "m": [("b", 2)]},
    ]
    refused(
        "l array<int>",
        pa.table({"l": pa.array([[1], [], [2, 2**40]])}),
        "column 'l.element', row 2: has the value 1099511627776",
    )
    sliced = pa.array([[2**40], [1], [], [2, 2**41]]).slice(1)
    refused("l array<int>", pa.table({"l": sliced}), "row 2: has the value 2199023255552")
    refused(
        "m map<string,int>",
        pa.table({"m": pa.array([[("a", 2**40)]], pa.map_(pa.string(), pa.int64()))}),
        "'m.value', row 0",
    )
    refused("s struct<a:long>", pa.table({"s": [{"a": 1, "z": 1}]}), "column 's': has the field 'z'")
    refused(
        "s struct<a:long not null>",
        pa.table({"s": pa.array([{"b": 1}], pa.struct([("b", pa.int64())]))}),
        "has the field 'b'",
    )
    refused("s struct<a:long not null, b:long>", pa.table({"s": [{"b": 1}]}), "'s.a': is required")
    assert aligned("s struct<a:long, b:long>", pa.table({"s": [{"b": 1}]})).to_pylist() == [
        {"s": {"a": None, "b": 1}}
    ]


def test_types_that_are_not_written_are_refused_at_once() -> None:
    with pytest.raises(FeatureUnsupportedError, match="variant"):
        RowCheck(Schema((NestedField(1, "v", VariantType()),)), "t")


def test_a_slice_of_lists_is_not_judged_by_the_items_of_other_rows() -> None:
    lists = pa.array([[1], [1 << 40], [3]], pa.list_(pa.int64()))
    maps = pa.array([[("a", 1)], [("b", 1 << 40)], []], pa.map_(pa.string(), pa.int64()))
    rows = pa.table({"l": lists, "m": maps})
    ddl = "l array<int>, m map<string,int>"
    assert aligned(ddl, rows.slice(0, 1)).to_pylist() == [{"l": [1], "m": [("a", 1)]}]
    assert aligned(ddl, rows.slice(2, 1)).to_pylist() == [{"l": [3], "m": []}]
    refused(ddl, rows.slice(0, 2), "column 'l.element', row 1")


def test_a_null_in_the_tables_key() -> None:
    """A column of the key cannot be made optional, so that is no way out."""
    schema = replace(parse_ddl("id long not null, v string"), identifier_field_ids=(1,))
    rows = pa.table({"id": pa.array([1, None], pa.int64()), "v": ["a", "b"]})
    with pytest.raises(SchemaMismatchError) as raised:
        RowCheck(schema, "t").align(rows)
    assert str(raised.value) == (
        "t: column 'id', row 1: the value is null and the table requires one. It is part of the table's key: filter or fill "
        "such rows in the stream."
    )
