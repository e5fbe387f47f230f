"""Converters from PostgreSQL values to Iceberg's: SQL expressions, and their texts as Arrow arrays.

`postgres_rows` puts the expressions into one COPY. The values have the form that a change stream by Debezium
leads to, so that equal rows are equal. What PostgreSQL has but Iceberg cannot hold (infinite times, a numeric
NaN, 24:00) becomes a value that no table contains, so that it is a difference rather than an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from streamlake.decode.values import text_columns
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.exact_decimals import exact_decimals
from streamlake.operate.verify.postgres_table import PostgresColumn
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_INT64_MAX, _INT32_MAX = 2**63 - 1, 2**31 - 1
_POINT = re.compile(r"\((.*),(.*)\)")
_WKB_POINT = struct.Struct("<BIdd")
_TIMES = (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_MICROS_OF_TIME = "(extract(epoch from $) * 1000000)::bigint"
_INFINITE = "case when isfinite($) then {} when $ > 'now' then {} when $ < 'now' then -{} end"
_MOMENT = _INFINITE.format(_MICROS_OF_TIME, _INT64_MAX, _INT64_MAX)
_DAY = _INFINITE.format("$ - date '1970-01-01'", _INT32_MAX, _INT32_MAX)
_BASE64 = r"translate(encode($, 'base64'), E'\n', '')"
_DURATION = (
    "((extract(year from $) * 12 + extract(month from $)) * 2629800000000 + extract(day from $) * 86400000000"
    " + extract(hour from $) * 3600000000 + extract(minute from $) * 60000000 + extract(microseconds from "
    "$))::bigint"
)
"""Microseconds, as in Debezium: a month is 30.4375 days."""
_ISO_INTERVAL = (
    "format('P%sY%sM%sDT%sH%sM%sS', extract(year from $), extract(month from $), extract(day from $),"
    " extract(hour from $), extract(minute from $), trim_scale(extract(second from $)))"
)
_UTC_TIME = "(($ at time zone 'UTC')::time::text || 'Z')"
_WRITTEN = "format('%s', $)"
"""As the type's output function writes it; a cast to text would cut the blanks of char(n)."""

_SQL: Mapping[tuple[type[IcebergType], str], str] = {
    (BooleanType, "bool"): "$::text",
    (BooleanType, "bit"): "($ = B'1')::text",
    **{(kind, name): "$" for kind in (IntegerType, LongType) for name in ("int2", "int4", "int8", "oid")},
    (LongType, "interval"): _DURATION,
    (LongType, "numeric"): "trim_scale($)",
    (IntegerType, "numeric"): "trim_scale($)",
    **{(kind, name): "$" for kind in (FloatType, DoubleType) for name in ("float4", "float8")},
    (DoubleType, "numeric"): "$::float8",
    **{(DecimalType, name): "$" for name in ("int2", "int4", "int8", "oid")},
    (DecimalType, "numeric"): "trim_scale($)",
    (DecimalType, "money"): "trim_scale($::numeric)",
    (DateType, "date"): _DAY,
    (TimeType, "time"): _MICROS_OF_TIME,
    (TimeType, "timetz"): _MICROS_OF_TIME.replace("$", "($ at time zone 'UTC')::time"),
    **{(kind, name): _MOMENT for kind in _TIMES for name in ("timestamp", "timestamptz")},
    (StringType, "timetz"): _UTC_TIME,
    (StringType, "interval"): _ISO_INTERVAL,
    (StringType, "numeric"): "trim_scale($)",
    (StringType, "money"): "trim_scale($::numeric)",
    (UUIDType, "uuid"): "$::text",
    (BinaryType, "bytea"): _BASE64,
    (FixedType, "bytea"): _BASE64,
    (BinaryType, "bit"): "$::text",
    (BinaryType, "varbit"): "$::text",
    (BinaryType, "point"): "$::text",
    **{(BinaryType, name): _BASE64.replace("$", "st_asbinary($)") for name in ("geometry", "geography")},
}
_NO_TEXT = frozenset({"bytea", "hstore", "record"})


@dataclass(frozen=True)
class Rendering:
    """How one column is read.

    `sql`: the expression, with the quoted column for each $. `arrow`: converts its texts to the column.
    `is_number`: the text is a number, in which trailing zeros after the point have no meaning. `is_single`:
    the column of doubles has 32-bit numbers, of which records without a schema have the shortest digits.
    """

    sql: str
    arrow: Callable[[pa.StringArray], pa.Array]
    is_number: bool = False
    is_single: bool = False


def rendering(column: PostgresColumn, type_: IcebergType) -> Rendering | None:
    """How `column` is compared with a table's column of `type_`; None where the types cannot be compared."""
    if column.is_array:
        if not isinstance(type_, ListType):
            return None
        element = rendering(PostgresColumn(column.name, column.type), type_.element_type)
        if element is None:
            return None
        inner, wanted = element.arrow, arrow_type(type_)
        text = f"({element.sql.replace('$', 'each.value')})::text"
        text = f"case when each.value is not null then {text} end"
        every = (
            f"select coalesce(json_agg({text} order by each.at), '[]') from unnest($) with ordinality as "
            "each(value, at)"
        )
        # A list has one dimension. An array of several is none of a table's values, so it is made to differ.
        nested = f"when array_ndims($) > 1 then (({every})::jsonb || '[null]')::json"
        return Rendering(
            f"case {nested} when $ is not null then ({every}) end",
            lambda found: _lists(found, inner, wanted),
        )
    sql = _SQL.get((type(type_), column.type))
    if sql is None and isinstance(type_, StringType) and column.type not in _NO_TEXT:
        sql = _WRITTEN
    if sql is None:
        return None
    # format() turns a null into an empty text.
    sql = f"case when $ is not null then {sql} end" if "format(" in sql else sql
    is_number = isinstance(type_, StringType) and column.type in ("numeric", "money")
    is_single = isinstance(type_, DoubleType) and column.type == "float4"
    return Rendering(sql, lambda found: _column(found, column.type, type_), is_number, is_single)


def _column(text: pa.StringArray, name: str, type_: IcebergType) -> pa.Array:
    wanted = arrow_type(type_)
    if isinstance(type_, StringType):
        return text
    if isinstance(type_, UUIDType):
        return text_columns.uuids(text).cast(wanted)
    if isinstance(type_, DecimalType):
        return _decimals(text, wanted)
    if isinstance(type_, (BinaryType, FixedType)):
        if name in ("bit", "varbit"):
            return pa.array([_bits(found) for found in text.to_pylist()], wanted)
        if name == "point":
            return pa.array([_point(found) for found in text.to_pylist()], wanted)
        return text_columns.base64_values(text, type_.length if isinstance(type_, FixedType) else None)
    if isinstance(type_, DateType):
        return text.cast(pa.int32()).cast(wanted)
    if isinstance(type_, (TimestampNsType, TimestamptzNsType)):
        return pc.multiply_checked(text.cast(pa.int64()), pa.scalar(1_000, pa.int64())).cast(wanted)
    if isinstance(type_, (TimeType, *_TIMES)):
        # A view, because 24:00 is no time that a cast would accept.
        return text.cast(pa.int64()).view(wanted)
    return text.cast(wanted)


def _decimals(text: pa.StringArray, wanted: pa.DataType) -> pa.Array:
    """Decimals; infinite and undefined ones become a number with one digit too many for any column.

    It is the greatest one of 128 bits.
    """
    odd = pc.is_in(text, pa.array(["NaN", "Infinity", "-Infinity"]))
    if not pc.any(odd, min_count=0).as_py():
        return exact_decimals(text, wanted)
    numbers = exact_decimals(pc.if_else(odd, pa.scalar("0"), text), wanted)
    words = np.frombuffer(numbers.buffers()[1], dtype=np.int64)[2 * numbers.offset :][: 2 * len(numbers)]
    words = words.reshape(-1, 2).copy()
    words[odd.to_numpy(zero_copy_only=False)] = (-1, _INT64_MAX)
    valid = pa.array(text.is_valid().to_numpy(zero_copy_only=False), pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(wanted, len(text), [valid, pa.py_buffer(words.tobytes())])


def _lists(
    text: pa.StringArray, inner: Callable[[pa.StringArray], pa.Array], wanted: pa.DataType
) -> pa.ListArray:
    """JSON arrays of texts as lists of the values that `inner` converts the texts to."""
    lines = pc.binary_join_element_wise(
        '{"v":', pc.replace_substring(text, "\n", ""), "}\n", "", null_handling="skip"
    )
    lines = pc.if_else(text.is_valid(), lines, pa.scalar('{"v":null}\n'))
    data = "".join(lines.to_pylist()).encode()
    if not data:
        return pa.array([], wanted)
    schema = pa.schema([("v", pa.list_(pa.string()))])
    options = pj.ParseOptions(explicit_schema=schema, newlines_in_values=False)
    block = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    found = pj.read_json(BytesIO(data), block, options).column("v").combine_chunks()
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    values: Any = inner(found.flatten())
    sizes = pc.list_value_length(found).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, wanted, mask=found.is_null())


def _bits(text: str | None) -> bytes | None:
    """Bits as bytes, the least significant first, without zero bytes at the end, like Java's BitSet."""
    if text is None:
        return None
    number = int(text or "0", 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _point(text: str | None) -> bytes | None:
    if text is None:
        return None
    match = _POINT.fullmatch(text)
    assert match is not None, text
    return _WKB_POINT.pack(1, 1, float(match[1]), float(match[2]))
