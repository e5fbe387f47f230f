"""Metrics of a data file: counts and bounds per column, as a manifest entry stores them.

Writers collect `ColumnStats` per leaf, from the Parquet footer where that is exact and from Arrow
(`ArrowStats`) where it is not. `file_metrics` turns them into `FileMetrics` under the table's metrics modes.
Leaves inside lists and maps get sizes only, as in Iceberg. Invariant: a lower bound is <= and an upper bound
>= every non-null, non-NaN value of the column, in the order of every reader we know of (spec: Data File
Fields, notes 1 and 2).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.columns.leaves import Leaf, leaf_values
from streamlake.formats.columns.metrics_config import MetricsMode
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    PrimitiveType,
    StringType,
    UUIDType,
)
from streamlake.spec.types.values import scaled, to_bytes, truncate_lower, truncate_upper

_SIGN = 1 << 63
_LONG_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class FileMetrics:
    """The metrics of a closed data file.

    Maps are keyed by field id; bounds are single-value bytes (Appendix D).
    """

    record_count: int
    file_size_in_bytes: int
    column_sizes: dict[int, int] | None = None
    value_counts: dict[int, int] | None = None
    null_value_counts: dict[int, int] | None = None
    nan_value_counts: dict[int, int] | None = None
    lower_bounds: dict[int, bytes] | None = None
    upper_bounds: dict[int, bytes] | None = None
    split_offsets: tuple[int, ...] | None = None


@dataclass
class ColumnStats:
    """Counts, minimum and maximum of one leaf so far; values of the spec's Python domain, NaN excluded."""

    value_count: int = 0
    null_count: int = 0
    nan_count: int | None = None
    lower: Any = None
    upper: Any = None

    def add(self, other: ColumnStats) -> None:
        """Add the statistics of further rows of the same leaf."""
        self.value_count += other.value_count
        self.null_count += other.null_count
        if other.nan_count is not None:
            self.nan_count = (self.nan_count or 0) + other.nan_count
        if other.lower is not None:
            self.lower = other.lower if self.lower is None else _lesser(self.lower, other.lower)
        if other.upper is not None:
            self.upper = other.upper if self.upper is None else _greater(self.upper, other.upper)


def _lesser(left: Any, right: Any) -> Any:
    return right if _key(right) < _key(left) else left


def _greater(left: Any, right: Any) -> Any:
    return right if _key(right) > _key(left) else left


def _key(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, float) and value == 0.0:
        return (0.0, np.copysign(1.0, value))
    return (value, 0.0) if isinstance(value, float) else value


class ArrowStats:
    """Statistics computed from the written tables, for the leaves and values that no footer has exactly."""

    def __init__(self, leaves: Iterable[Leaf], modes: Mapping[int, MetricsMode]) -> None:
        self._leaves = [leaf for leaf in leaves if not leaf.repeated and modes[leaf.field_id].counts]
        self._modes = modes
        self.columns: dict[int, ColumnStats] = {leaf.field_id: ColumnStats() for leaf in self._leaves}

    def update(self, table: pa.Table) -> None:
        """Add the rows of `table`, whose columns are in schema order."""
        for leaf in self._leaves:
            values = leaf_values(table, leaf)
            self.columns[leaf.field_id].add(
                array_stats(values, leaf.type, bounds=self._modes[leaf.field_id].bounds)
            )


def nan_count(values: pa.ChunkedArray) -> int:
    """How many values of a floating point column are NaN."""
    return int(pc.sum(pc.is_nan(values)).as_py() or 0)


def array_stats(values: pa.ChunkedArray, type_: PrimitiveType, *, bounds: bool) -> ColumnStats:
    """The statistics of one leaf's values; without `bounds` only the counts."""
    stats = ColumnStats(len(values), values.null_count)
    if isinstance(type_, (FloatType, DoubleType)):
        stats.nan_count = nan_count(values)
    if bounds and len(values) > values.null_count:
        stats.lower, stats.upper = _extremes(values, type_)
    return stats


def _extremes(values: pa.ChunkedArray, type_: PrimitiveType) -> tuple[Any, Any]:
    if isinstance(type_, UUIDType):
        values = pa.chunked_array(
            [getattr(chunk, "storage", chunk) for chunk in values.chunks], type=pa.binary(16)
        )
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    elif pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_string() if isinstance(type_, StringType) else pa.large_binary())
    extremes = pc.min_max(values)
    lower, upper = extremes["min"].as_py(), extremes["max"].as_py()
    if isinstance(type_, UUIDType):
        return uuid.UUID(bytes=lower), uuid.UUID(bytes=upper)
    if isinstance(type_, (FloatType, DoubleType)):
        return widened_float_bounds(lower, upper)
    return lower, upper


def widened_float_bounds(lower: float | None, upper: float | None) -> tuple[float | None, float | None]:
    """Bounds without NaN; a zero is -0.0 as lower and +0.0 as upper bound, so that either zero is found."""
    if lower is None or upper is None or lower != lower or upper != upper:
        return None, None
    return (-0.0 if lower == 0.0 else lower), (0.0 if upper == 0.0 else upper)


def uuid_bounds(lower: uuid.UUID, upper: uuid.UUID) -> tuple[uuid.UUID | None, uuid.UUID | None]:
    """Bounds that hold for readers that order UUIDs as unsigned bytes and for those with signed halves.

    Iceberg's Java library compares both 64-bit halves as signed numbers, everyone else compares unsigned
    bytes. The two orders agree where the first halves differ and have the same top bit. So the bounds move
    the first half one step outwards; where that is not possible, there is no bound.
    """
    if lower == upper:
        return lower, upper
    low, high = lower.int >> 64, upper.int >> 64
    if (low ^ high) & _SIGN:
        return None, None
    below = None if low in (0, _SIGN) else uuid.UUID(int=(low - 1) << 64)
    above = None if high in (_SIGN - 1, _LONG_MASK) else uuid.UUID(int=(high + 1) << 64)
    return below, above


def bound_bytes(
    type_: PrimitiveType, stats: ColumnStats, mode: MetricsMode
) -> tuple[bytes | None, bytes | None]:
    """The serialized bounds of a column under a metrics mode; None where it has none."""
    lower, upper = stats.lower, stats.upper
    if not mode.bounds or lower is None or upper is None:
        return None, None
    if isinstance(type_, UUIDType):
        lower, upper = uuid_bounds(lower, upper)
    elif mode.width is not None and isinstance(type_, (StringType, BinaryType)):
        lower, upper = truncate_lower(type_, lower, mode.width), truncate_upper(type_, upper, mode.width)
    return (
        None if lower is None else to_bytes(type_, lower),
        None if upper is None else to_bytes(type_, upper),
    )


def file_metrics(
    record_count: int,
    file_size_in_bytes: int,
    leaves: Iterable[Leaf],
    modes: Mapping[int, MetricsMode],
    columns: Mapping[int, ColumnStats],
    *,
    column_sizes: dict[int, int] | None = None,
    split_offsets: tuple[int, ...] | None = None,
) -> FileMetrics:
    """The collected statistics as the metrics of a manifest entry."""
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    nans: dict[int, int] = {}
    lowers: dict[int, bytes] = {}
    uppers: dict[int, bytes] = {}
    for leaf in leaves:
        stats = columns.get(leaf.field_id)
        if stats is None:
            continue
        values[leaf.field_id], nulls[leaf.field_id] = stats.value_count, stats.null_count
        if stats.nan_count is not None:
            nans[leaf.field_id] = stats.nan_count
        lower, upper = bound_bytes(leaf.type, stats, modes[leaf.field_id])
        if lower is not None:
            lowers[leaf.field_id] = lower
        if upper is not None:
            uppers[leaf.field_id] = upper
    return FileMetrics(
        record_count, file_size_in_bytes, column_sizes, values, nulls, nans, lowers, uppers, split_offsets
    )


def physical_value(type_: PrimitiveType, raw: Any) -> Any:
    """A Parquet footer's raw statistic (bool, int, float or bytes) as a value of the spec's Python domain."""
    if isinstance(type_, DecimalType):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        return scaled(unscaled, type_.scale)
    if isinstance(type_, StringType):
        return raw.decode("utf-8") if isinstance(raw, bytes) else raw
    if isinstance(type_, UUIDType):
        return uuid.UUID(bytes=bytes(raw))
    if isinstance(type_, (BinaryType, FixedType)):
        return bytes(raw)
    return bool(raw) if isinstance(type_, BooleanType) else raw
