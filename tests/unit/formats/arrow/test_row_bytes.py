"""Rows as bytes: equal exactly when the rows are, for every type, and readable again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.arrow.row_bytes import decode_row, encode_rows
from streamlake.spec.types.ddl import parse_ddl

SAMPLES: dict[str, list[Any]] = {
    "boolean": [None, True, False],
    "int": [None, 0, 1, -1],
    "long": [None, 0, 1, 256, -(2**63)],
    "float": [None, 0.0, -0.0, 1.5, float("nan"), float("inf")],
    "double": [None, 0.0, -0.0, 1.5, float("nan"), 5e-324],
    "decimal(38,4)": [
        None,
        Decimal("0.0000"),
        Decimal("1.5000"),
        Decimal("-1.5000"),
        Decimal("9" * 34 + ".0001"),
    ],
    "date": [None, 0, 1],
    "time": [None, 0, 1],
    "timestamp": [None, 0, 1, -1],
    "timestamptz": [None, 0, 1],
    "timestamp_ns": [None, 0, 1],
    "string": [None, "", "a", "ab", "\x00", "é"],
    "binary": [None, b"", b"\x00", b"\x00\x00", b"\x01"],
    "fixed[3]": [None, b"abc", b"abd", b"\x00\x00\x00"],
    "uuid": [None, UUID(int=0).bytes, UUID(int=7).bytes],
    "struct<a: int, b: string>": [
        None,
        {"a": None, "b": None},
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        {"a": 1, "b": "x"},
    ],
    "list<int>": [None, [], [None], [0], [0, 0], [1, 2], [2, 1]],
    "list<list<string>>": [None, [], [[]], [None], [[], []], [["a"], ["b"]], [["a", "b"]], [["ab"]]],
    "map<string, int>": [None, [], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)], [("b", 1), ("a", 2)]],
    "list<struct<a: map<int, string>>>": [None, [], [None], [{"a": None}], [{"a": []}], [{"a": [(1, "x")]}]],
}


def arrays(ddl: str, values: list[Any]) -> tuple[pa.Array, Any]:
    schema = parse_ddl(f"c {ddl}")
    field = schema.fields[0]
    arrow = schema_to_arrow(schema, field_ids=False).field("c").type
    if isinstance(arrow, pa.TimestampType) or pa.types.is_time(arrow) or pa.types.is_date(arrow):
        storage = pa.int32() if pa.types.is_date(arrow) else pa.int64()
        return pa.array(values, storage).cast(arrow), field.type
    return pa.array(values, arrow), field.type


@pytest.mark.parametrize("ddl", SAMPLES)
def test_rows_differ_exactly_where_values_do(ddl: str) -> None:
    array, type_ = arrays(ddl, SAMPLES[ddl])
    encoded = encode_rows([array], [type_]).to_pylist()
    assert len(set(encoded)) == len(encoded)
    assert encode_rows([array], [type_]).to_pylist() == encoded
    assert not any(one != other and other.startswith(one) for one in encoded for other in encoded)
    sliced, _ = arrays(ddl, [SAMPLES[ddl][-1], *SAMPLES[ddl]])
    assert encode_rows([sliced.slice(1)], [type_]).to_pylist() == encoded
    empty, _ = arrays(ddl, [])
    assert encode_rows([empty], [type_]).to_pylist() == []


@pytest.mark.parametrize("ddl", SAMPLES)
def test_values_come_back(ddl: str) -> None:
    array, type_ = arrays(ddl, SAMPLES[ddl])
    for data, value in zip(encode_rows([array], [type_]).to_pylist(), SAMPLES[ddl], strict=True):
        [(decoded, part)] = decode_row(data, [type_])
        assert part == data
        expected = UUID(bytes=value) if ddl == "uuid" and value is not None else value
        if ddl.startswith("map") and decoded is not None:
            decoded, expected = sorted(decoded), sorted(expected)
        assert repr(decoded) == repr(expected) or decoded == expected


def test_nan_equals_nan_whatever_its_bits() -> None:
    import numpy as np

    values = np.array([0x7FF8000000000000, 0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    _, type_ = arrays("double", [])
    one, other = encode_rows([pa.array(values)], [type_]).to_pylist()
    assert one == other


def test_zeros_are_equal_in_a_key_only() -> None:
    for ddl in ("float", "double"):
        array, type_ = arrays(ddl, [0.0, -0.0])
        assert len(set(encode_rows([array], [type_], as_key=True).to_pylist())) == 1
        assert len(set(encode_rows([array], [type_]).to_pylist())) == 2


def test_the_entries_of_a_map_have_no_order() -> None:
    array, type_ = arrays("map<string, int>", [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]])
    assert len(set(encode_rows([array], [type_]).to_pylist())) == 1


def test_what_lies_under_a_null_does_not_count() -> None:
    _, type_ = arrays("struct<a: int>", [])
    parts = pa.array([1, 2], pa.int32())
    array = pa.StructArray.from_arrays([parts], names=["a"], mask=pa.array([True, True]))
    assert encode_rows([array], [type_]).to_pylist() == [b"\x00", b"\x00"]


def test_a_type_that_has_no_equality() -> None:
    schema = parse_ddl("c variant")
    with pytest.raises(FeatureUnsupportedError, match="variant"):
        encode_rows([pa.array([None, None], pa.null())], [schema.fields[0].type])


ROWS = st.tuples(
    st.one_of(st.none(), st.text(max_size=3)),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=2)), max_size=3)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_columns_do_not_run_into_each_other(rows: list[tuple[Any, ...]]) -> None:
    columns, types = zip(
        *(
            arrays(ddl, [row[at] for row in rows])
            for at, ddl in enumerate(("string", "long", "list<string>"))
        ),
        strict=True,
    )
    encoded = encode_rows(columns, types).to_pylist()
    for one, first in zip(rows, encoded, strict=True):
        assert [value for value, _ in decode_row(first, types)] == list(one)
        for other, second in zip(rows, encoded, strict=True):
            assert (first == second) is (one == other)
