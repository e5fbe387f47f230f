"""Column statistics of a Parquet file: from its footer, completed from Arrow where the footer has none.

Used by the Parquet writer, and by readers to prune row groups. The footer is exact for counts, numbers, dates
and short strings. It has no NaN counts, no bounds of long strings, and, by our own choice, nothing about
UUIDs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamlake.formats.columns.leaves import Leaf, leaf_values
from streamlake.formats.columns.metrics import (
    ArrowStats,
    ColumnStats,
    array_stats,
    nan_count,
    physical_value,
    widened_float_bounds,
)
from streamlake.formats.columns.metrics_config import MetricsMode
from streamlake.spec.types.data_types import BinaryType, DoubleType, FloatType, StringType, UUIDType

# pyarrow leaves minimum and maximum of a column chunk out of the footer when one exceeds 4096 bytes.
_LONG_BYTES = 4000
_FLOATS = (FloatType, DoubleType)


class ParquetStats:
    """Collects, per written row group, what the footer will lack; then merges both."""

    def __init__(self, leaves: Iterable[Leaf], modes: Mapping[int, MetricsMode]) -> None:
        self._leaves = [leaf for leaf in leaves if not leaf.repeated and modes[leaf.field_id].counts]
        self._modes = modes
        self._nan_counts = {leaf.field_id: 0 for leaf in self._leaves if isinstance(leaf.type, _FLOATS)}
        self._uuids = ArrowStats([leaf for leaf in self._leaves if isinstance(leaf.type, UUIDType)], modes)
        self._long: dict[int, ColumnStats] = {}

    def update(self, table: pa.Table) -> None:
        """Add rows that were written as row groups of their own; columns are in schema order."""
        self._uuids.update(table)
        for leaf in self._leaves:
            if isinstance(leaf.type, _FLOATS):
                self._nan_counts[leaf.field_id] += nan_count(leaf_values(table, leaf))
            elif isinstance(leaf.type, (StringType, BinaryType)) and self._modes[leaf.field_id].bounds:
                values = leaf_values(table, leaf)
                if (pc.max(pc.binary_length(values)).as_py() or 0) > _LONG_BYTES:
                    stats = array_stats(values, leaf.type, bounds=True)
                    self._long.setdefault(leaf.field_id, ColumnStats()).add(stats)

    def columns(self, footer: pq.FileMetaData) -> dict[int, ColumnStats]:
        """The statistics of every counted leaf of the closed file, by field id."""
        found: dict[int, ColumnStats] = {}
        for leaf in self._leaves:
            computed = self._uuids.columns.get(leaf.field_id)
            if computed is not None:
                found[leaf.field_id] = computed
                continue
            stats = footer_stats(
                footer, leaf, range(footer.num_row_groups), beside=self._long.get(leaf.field_id)
            )
            if stats is not None:
                stats.nan_count = self._nan_counts.get(leaf.field_id)
                found[leaf.field_id] = stats
        return found


def footer_stats(
    footer: pq.FileMetaData, leaf: Leaf, row_groups: Iterable[int], *, beside: ColumnStats | None = None
) -> ColumnStats | None:
    """Counts, minimum and maximum of a leaf over some row groups, or None where the footer has no counts.

    `beside` holds minimum and maximum of row groups for which the footer has none; without it such a group
    voids the bounds.
    """
    total = ColumnStats()
    bounded = True
    for at in row_groups:
        chunk = footer.row_group(at).column(leaf.index)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        stats = ColumnStats(chunk.num_values, statistics.null_count)
        if statistics.has_min_max:
            stats.lower, stats.upper = _extremes(leaf, statistics)
        elif statistics.null_count < chunk.num_values and not isinstance(leaf.type, _FLOATS):
            bounded = False
        total.add(stats)
    if not bounded:
        if beside is None:
            total.lower = total.upper = None
        else:
            total.add(ColumnStats(lower=beside.lower, upper=beside.upper))
    return total


def _extremes(leaf: Leaf, statistics: pq.Statistics) -> tuple[Any, Any]:
    lower, upper = (physical_value(leaf.type, raw) for raw in (statistics.min_raw, statistics.max_raw))
    return widened_float_bounds(lower, upper) if isinstance(leaf.type, _FLOATS) else (lower, upper)


def column_sizes(
    footer: pq.FileMetaData, leaves: Sequence[Leaf], modes: Mapping[int, MetricsMode]
) -> dict[int, int]:
    """Compressed bytes per field id, including leaves inside lists and maps."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    return {
        leaf.field_id: sum(group.column(leaf.index).total_compressed_size for group in groups)
        for leaf in leaves
        if modes[leaf.field_id].counts
    }


def split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Where each row group starts in the file."""
    return tuple(row_group_start(footer.row_group(at)) for at in range(footer.num_row_groups))


def row_group_start(group: pq.RowGroupMetaData) -> int:
    """The offset of a row group's first page."""
    first = group.column(0)
    return int(first.dictionary_page_offset or first.data_page_offset)
