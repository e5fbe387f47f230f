"""Corrects fractions of seconds before 1970 in ORC files, so that every ORC reader reads them right.

ORC keeps a timestamp as seconds and nanoseconds, cut so that the nanoseconds are never negative (ORC
specification: timestamp columns). pyarrow writes negative ones before 1970: it reads them back itself, but
Iceberg's Java readers are one second off. So a file with such values gets new nanoseconds in its timestamp
columns when it is closed. The ORC writer converts its values with `orc_timestamps`, and calls `rewritten_orc`
for a file in which it has seen `has_odd_fractions`.

A reader combines the parts in this way: seconds below 0 with more than 999,999 nanoseconds are one second
less. Hence there are three kinds of values before 1970, by the fraction above their whole second:
- 1 ms and more: seconds are cut towards 1970, as pyarrow does it. In the last second before 1970 they would
  be 0 and read as after 1970: no file can hold these values.
- Below 1 ms: seconds are the whole second. pyarrow gets the value minus one second to make that of it.
- The last millisecond before 1970: only negative nanoseconds are read right, and those are what pyarrow
  writes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from streamlake.errors import DataInvalidError
from streamlake.formats.orc.orc_container import (
    BYTES,
    Message,
    ProtoField,
    children,
    message_bytes,
    number,
    packed,
    parse_message,
    unpacked,
    with_children,
    with_number,
)

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDARY = 5
_TIMESTAMP_STATISTICS = 9
_RUN = 512
_WIDTH_CODES = {1: 7, 2: 15, 3: 23, 4: 27, 5: 28, 8: 31}

# numpy array of int64; numpy's type stubs are not required.
Longs: TypeAlias = Any


def has_odd_fractions(array: pa.Array) -> bool:
    """Whether the timestamps hold fractions of seconds before 1970, which need `rewritten_orc`."""
    values = _longs(array.drop_null())
    unit = _PER_SECOND[array.type.unit]
    return bool(np.any((values < 0) & (values % unit != 0)))


def orc_timestamps(array: pa.Array) -> pa.Array:
    """The timestamps as pyarrow's ORC writer needs them. Raises DataInvalidError for what ORC cannot hold."""
    unit = _PER_SECOND[array.type.unit]
    if unit < 10**6:
        return array
    milli = unit // 1000
    values = _longs(pc.fill_null(array.cast(pa.int64()), 0))
    fractions = values % unit
    lost = (values > -unit) & (values <= -milli) & (fractions >= milli)
    if lost.any():
        example = pa.scalar(int(values[lost][0]), array.type)
        raise DataInvalidError(
            f"the timestamp {example} cannot be stored in ORC: readers take the last second before 1970 for "
            "the first after it; use write.format.default=parquet or avro for this table"
        )
    low = (values < 0) & (fractions > 0) & (fractions < milli)
    if not low.any():
        return array
    if values[low].min() < np.iinfo(np.int64).min + unit:
        raise DataInvalidError(
            "a timestamp of 1677 is out of the range that pyarrow writes to ORC; use "
            "write.format.default=parquet or avro"
        )
    shifted = pa.array(values - np.where(low, unit, 0), pa.int64(), mask=np.asarray(array.is_null()))
    return shifted.cast(array.type)


def rewritten_orc(data: bytes) -> bytes:
    """A complete ORC file of pyarrow's, with the nanoseconds of all timestamp columns as ORC defines them.

    Statistics of timestamp columns are left out, and so are row indexes, which point into the replaced
    streams. Raises DataInvalidError when pyarrow cannot read the file's own timestamps (years before 1678 or
    after 2261).
    """
    file = orc.ORCFile(pa.BufferReader(data))
    tail = data[-1 - data[-1] : -1]
    postscript = parse_message(tail)
    codec, block_size = number(postscript, 2), number(postscript, 3, 262_144)
    end = len(data) - 1 - len(tail)
    start = end - number(postscript, 1)
    footer = parse_message(unpacked(data[start:end], codec))
    metadata = parse_message(unpacked(data[start - number(postscript, 5) : start], codec))
    columns = dict(_timestamp_columns(file.schema))

    out, stripes = bytearray(data[: number(footer, 1, 3)]), []
    for at, stripe in enumerate(children(footer, 3)):
        begin, index, length, foot = (number(stripe, field) for field in (1, 2, 3, 4))
        batch = _stripe_rows(file, at)
        nanos = {column: _nanos(_values(batch, path)) for column, path in columns.items()}
        stripe_footer = parse_message(unpacked(data[begin + index + length :][:foot], codec))
        streams, position, body = [], begin, bytearray()
        for stream in children(stripe_footer, 1):
            kind, column, size = (number(stream, field) for field in (1, 2, 3))
            content = data[position : position + size]
            position += size
            if position <= begin + index:
                continue
            if kind == _SECONDARY and column in nanos:
                content = packed(encoded_unsigned(_formatted(nanos[column])), codec, block_size)
            body += content
            streams.append(with_number(stream, 3, len(content)))
        new_foot = packed(message_bytes(with_children(stripe_footer, 1, streams)), codec, block_size)
        for field, value in ((1, len(out)), (2, 0), (3, len(body)), (4, len(new_foot))):
            stripe = with_number(stripe, field, value)
        stripes.append(stripe)
        out += body + new_foot
    footer = with_number(with_children(footer, 3, stripes), 2, len(out) - number(footer, 1, 3))
    footer = with_number(_without_statistics(footer, 7, columns), 8, 0)
    per_stripe = [_without_statistics(each, 1, columns) for each in children(metadata, 1)]
    new_metadata = packed(message_bytes(with_children(metadata, 1, per_stripe)), codec, block_size)
    new_footer = packed(message_bytes(footer), codec, block_size)
    postscript = with_number(postscript, 5, len(new_metadata))
    new_tail = message_bytes(with_number(postscript, 1, len(new_footer)))
    return bytes(out) + new_metadata + new_footer + new_tail + bytes([len(new_tail)])


def encoded_unsigned(values: Any) -> bytes:
    """Integers as direct runs of ORC's run length encoding version 2, with whole bytes per value."""
    largest = int(values.max(initial=0))
    width = next(size for size in _WIDTH_CODES if largest < 1 << 8 * size)
    packed_values = values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
    parts = []
    for start in range(0, len(values), _RUN):
        run = packed_values[start : start + _RUN]
        header = 0b01 << 14 | _WIDTH_CODES[width] << 9 | len(run) - 1
        parts += [header.to_bytes(2, "big"), run.tobytes()]
    return b"".join(parts)


def _formatted(nanos: Longs) -> Any:
    """Nanoseconds as ORC stores them.

    Trailing zeros are cut (from two on) and counted in the lowest three bits.
    """
    values: Longs = nanos.copy()
    zeros: Longs = np.zeros(len(nanos), np.int64)
    shorter = (values != 0) & (values % 100 == 0)
    values[shorter] //= 100
    zeros[shorter] = 1
    for _ in range(6):
        shorter &= values % 10 == 0
        values[shorter] //= 10
        zeros[shorter] += 1
    return (values << 3 | zeros).view(np.uint64)


def _nanos(array: pa.Array) -> Longs:
    """The nanoseconds that belong to the seconds which pyarrow stored for the values."""
    unit = _PER_SECOND[array.type.unit]
    values = _longs(array)
    last_milli = (values < 0) & (values > -unit // 1000)
    return np.where(last_milli, values, values % unit) * (10**9 // unit)


def _timestamp_columns(schema: pa.Schema) -> list[tuple[int, tuple[int, ...]]]:
    """ORC numbers of the timestamp columns, each with the path of child positions to it.

    Types are numbered in depth-first order; 0 is the row.
    """
    found, count = [], 0

    def walk(type_: pa.DataType, path: tuple[int, ...]) -> None:
        nonlocal count
        count += 1
        if pa.types.is_timestamp(type_):
            found.append((count, path))
        for at, child in enumerate(_child_types(type_)):
            walk(child, (*path, at))

    for at, part in enumerate(schema):
        walk(part.type, (at,))
    return found


def _child_types(type_: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(type_):
        return [type_.field(at).type for at in range(type_.num_fields)]
    if pa.types.is_map(type_):
        return [type_.key_type, type_.item_type]
    return [type_.value_type] if pa.types.is_list(type_) else []


def _values(batch: pa.RecordBatch, path: tuple[int, ...]) -> pa.Array:
    """The values of a leaf that ORC stores: those with non-null parents, without nulls."""
    array = batch.column(path[0])
    for position in path[1:]:
        array = array.drop_null()
        if pa.types.is_map(array.type):
            array = array.items if position else array.keys
        else:
            array = array.field(position) if pa.types.is_struct(array.type) else array.flatten()
    return array.drop_null()


def _stripe_rows(file: orc.ORCFile, at: int) -> pa.RecordBatch:
    try:
        return file.read_stripe(at)
    except pa.ArrowInvalid as cause:
        raise DataInvalidError(
            "fractions of seconds before 1970 and years outside of 1677 to 2262 do not fit into one ORC "
            f"file: {cause}; use write.format.default=parquet or avro for this table"
        ) from cause


def _without_statistics(message: Message, field: int, columns: dict[int, Any]) -> Message:
    """`message` without the statistics of timestamp columns in its repeated `field`; their counts stay."""
    kept = [
        [part for part in each if column not in columns or part.number != _TIMESTAMP_STATISTICS]
        for column, each in enumerate(children(message, field))
    ]
    others = [part for part in message if part.number != field]
    return [*others, *(ProtoField(field, BYTES, message_bytes(each)) for each in kept)]


def _longs(array: pa.Array) -> Longs:
    return np.asarray(array.cast(pa.int64()))
