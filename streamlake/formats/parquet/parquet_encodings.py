"""Chooses the encoding of each Parquet column from a sample of the first row group.

The Parquet writer asks once per file, before its first row group. There are three encodings, because
Iceberg's vectorised reader has understood these since 1.10: PLAIN, dictionary, and DELTA_BINARY_PACKED for
integers, dates, times, timestamps and decimals stored as integers. Sizes after compression decide: those of
PLAIN and delta are measured by writing a small sample, that of a dictionary is computed from an estimate of
the number of distinct values. Invariant: the choice changes size and speed only, never what a reader sees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamlake.formats.columns.leaves import Leaf, leaf_values
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_DELTA = "DELTA_BINARY_PACKED"
_INTEGER_TYPES = (
    IntegerType,
    LongType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNsType,
    TimestamptzNsType,
)
_MAX_INT64_DECIMAL_PRECISION = 18
_TRIAL_RUNS, _TRIAL_RUN_ROWS = 4, 1024
_DISTINCT_RUNS, _DISTINCT_RUN_ROWS = 128, 32
_MIN_ROWS_FOR_TRIAL = 256
_DICTIONARY_GAIN = 0.9
_PLAIN_GAIN = 0.9


@dataclass(frozen=True)
class EncodingPlan:
    """The columns (Parquet paths) with a dictionary, and the encodings of columns that are not PLAIN."""

    dictionary: tuple[str, ...] = ()
    encodings: dict[str, str] = field(default_factory=dict)


def plan_encodings(
    table: pa.Table,
    leaves: Sequence[Leaf],
    *,
    dict_size_bytes: int,
    delta: bool,
    codec: str,
    level: int | None,
) -> EncodingPlan:
    """Choose encodings for a file that starts with `table` (one row group, in schema order)."""
    if table.num_rows < _MIN_ROWS_FOR_TRIAL:
        return EncodingPlan(tuple(leaf.parquet_path for leaf in leaves if _may_have_dictionary(leaf.type)))
    spread = _runs(table, _DISTINCT_RUNS, _DISTINCT_RUN_ROWS)
    trial = _runs(table, _TRIAL_RUNS, _TRIAL_RUN_ROWS)
    delta_leaves = [leaf for leaf in leaves if delta and _is_stored_as_integer(leaf.type)]
    plain_bits = _bits_per_value(trial, {}, codec, level)
    delta_bits = (
        _bits_per_value(trial, {leaf.parquet_path: _DELTA for leaf in delta_leaves}, codec, level)
        if delta_leaves
        else plain_bits
    )
    dictionary: list[str] = []
    encodings: dict[str, str] = {}
    for leaf in leaves:
        plain, packed = plain_bits[leaf.index], delta_bits[leaf.index]
        best = packed if leaf in delta_leaves and plain > packed * _PLAIN_GAIN else plain
        if _may_have_dictionary(leaf.type):
            rows = table.num_rows * max(1, trial_values(spread, leaf)) // max(1, spread.num_rows)
            bits = _dictionary_bits(leaf_values(spread, leaf), leaf.type, rows, dict_size_bytes)
            if bits is not None and bits <= best * _DICTIONARY_GAIN:
                dictionary.append(leaf.parquet_path)
                continue
        if best is packed and leaf in delta_leaves:
            encodings[leaf.parquet_path] = _DELTA
    return EncodingPlan(tuple(dictionary), encodings)


def trial_values(sample: pa.Table, leaf: Leaf) -> int:
    """The number of values of the leaf in a sample; not the number of rows inside lists and maps."""
    return len(leaf_values(sample, leaf)) if leaf.repeated else sample.num_rows


def _may_have_dictionary(type_: PrimitiveType) -> bool:
    return not isinstance(type_, BooleanType)


def _is_stored_as_integer(type_: PrimitiveType) -> bool:
    if isinstance(type_, DecimalType):
        return type_.precision <= _MAX_INT64_DECIMAL_PRECISION
    return isinstance(type_, _INTEGER_TYPES)


def _runs(table: pa.Table, runs: int, length: int) -> pa.Table:
    """Up to `runs` evenly spaced runs of `length` consecutive rows, as one chunk per column."""
    if table.num_rows <= runs * length:
        return table.combine_chunks()
    step = (table.num_rows - length) / max(1, runs - 1)
    return pa.concat_tables([table.slice(int(run * step), length) for run in range(runs)]).combine_chunks()


def _bits_per_value(
    sample: pa.Table, encodings: dict[str, str], codec: str, level: int | None
) -> list[float]:
    """Compressed bits per value of each leaf when the sample is written without dictionaries."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        sample.schema,
        compression=codec,
        compression_level=level,
        use_dictionary=False,
        column_encoding=encodings or None,
        write_statistics=False,
        store_schema=False,
        store_decimal_as_integer=True,
    ) as writer:
        writer.write_table(sample)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    return [_column_bits(group.column(index)) for index in range(group.num_columns)]


def _column_bits(chunk: pq.ColumnChunkMetaData) -> float:
    return float(8 * chunk.total_compressed_size / max(1, chunk.num_values))


def _dictionary_bits(
    values: pa.ChunkedArray, type_: PrimitiveType, total_values: int, dict_size_bytes: int
) -> float | None:
    """Estimated bits per value with a dictionary, or None where the dictionary would grow too large."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], type=values.type.storage_type)
    present = len(values) - values.null_count
    if present == 0:
        return 0.0
    counts = pc.value_counts(values.drop_null()).field("counts")
    once, twice = (pc.sum(pc.equal(counts, times)).as_py() for times in (1, 2))
    distinct = estimated_distinct(len(counts), once, twice, present, total_values)
    width = _value_bytes(values, type_, present)
    if distinct * width > dict_size_bytes:
        return None
    return math.log2(max(2.0, distinct)) + 8 * distinct * width / max(1, total_values)


def _value_bytes(values: pa.ChunkedArray, type_: PrimitiveType, present: int) -> float:
    """Bytes per value in a dictionary."""
    if isinstance(type_, (IntegerType, DateType, FloatType)):
        return 4.0
    if isinstance(type_, UUIDType):
        return 16.0
    if isinstance(type_, FixedType):
        return float(type_.length)
    if isinstance(type_, DecimalType):
        return 8.0 if _is_stored_as_integer(type_) else 16.0
    if isinstance(type_, (StringType, BinaryType)):
        return 4.0 + float(pc.sum(pc.binary_length(values)).as_py() or 0) / present
    return 8.0


def estimated_distinct(seen: int, once: int, twice: int, sampled: int, total: int) -> float:
    """The estimated number of distinct values among `total`.

    In the sample, `sampled` values show `seen` distinct ones, of which `once` occur once and `twice` occur
    twice. The result is the larger of two estimates: the number of equally frequent values that show `seen`
    (by bisection of the expected number, d * (1 - exp(-sampled / d))), and Chao's lower bound for values of
    unequal frequency.
    """
    if seen >= sampled or not twice:
        return float(total if once else seen)
    low, high = float(seen), float(max(seen, total))
    for _ in range(40):
        middle = (low + high) / 2
        if middle * -math.expm1(-sampled / middle) < seen:
            low = middle
        else:
            high = middle
    return min(float(total), max(high, seen + once * once / (2 * twice)))
