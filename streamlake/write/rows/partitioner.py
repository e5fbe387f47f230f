"""Splits rows by partition, a whole table at a time.

Every partition field of a table becomes dense codes (dictionary encoding). The codes of all fields are
combined into one dense group number per row. A stable sort by it brings the rows of a partition together,
piece by piece: rows move fastest within what fits the processor's cache. Rows that already come in long runs
of one partition are only sliced. Invariant: within a partition, rows keep their order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.arrow_transforms import integers, plain_array, transform_array
from streamlake.formats.columns.partition_values import partition_values
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec
from streamlake.spec.partitioning.transforms import Void
from streamlake.spec.types.schema import Schema
from streamlake.write.rows.columns import SourceColumn

Array = np.ndarray[Any, Any]

Piece = tuple[pa.Table, list["PartitionRun"]]
"""A table and the runs that it consists of, first to last."""

_LONG_RUN_ROWS = 1_024
_SHORT_RUN_ROWS = 64
_PIECE_BYTES = 3 << 20
_DIRECT_SPAN = 1 << 16


class PartitionRun(NamedTuple):
    """Rows [start, stop) of a table, which belong to partition `number` (`Partitioner.partition`)."""

    number: int
    start: int
    stop: int


class Partitioner:
    """Partitions tables of the table's schema by a spec.

    Partitions are numbered in the order in which they first occur. Raises FeatureUnsupportedError for a spec
    with an unknown transform or a dropped source column (of a field that is not void).
    """

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        used_by = f"partition spec {spec.spec_id}"
        self._sources = [
            None if isinstance(part.transform, Void) else SourceColumn(schema, part.source_id, used_by)
            for part in spec.fields
        ]
        self._spec = spec
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._partitions: list[tuple[Any, ...]] = []

    @property
    def count(self) -> int:
        """The number of partitions so far."""
        return len(self._partitions)

    def partition(self, number: int) -> tuple[Any, ...]:
        """The partition tuple of a number, in the Python domain of `spec`."""
        return self._partitions[number]

    def split(self, rows: pa.Table, *, keep_order: bool = False) -> list[Piece]:
        """The rows in pieces, each reordered where needed, with the runs of one partition in each.

        With `keep_order` the rows keep their order, however short the runs become.
        """
        if not rows.num_rows:
            return []
        groups, partitions = self._groups(rows)
        numbers = np.array([self._number(partition) for partition in partitions])
        if keep_order or _changes(groups) * _LONG_RUN_ROWS <= rows.num_rows:
            return [(rows, _runs(groups, numbers))]
        # numpy sorts 16-bit numbers by radix: several times faster than wider ones.
        groups = groups.astype(np.uint16) if len(partitions) <= 1 << 16 else groups
        step = max(_SHORT_RUN_ROWS * len(partitions), _PIECE_BYTES * rows.num_rows // max(1, rows.nbytes), 1)
        return [
            _brought_together(rows.slice(start, step), groups[start : start + step], numbers)
            for start in range(0, rows.num_rows, step)
        ]

    def _number(self, partition: tuple[Any, ...]) -> int:
        # As text, NaN is one value, and -0.0 differs from 0.0.
        key = tuple(repr(value) if isinstance(value, float) else value for value in partition)
        number = self._numbers.setdefault(key, len(self._partitions))
        if number == len(self._partitions):
            self._partitions.append(partition)
        return number

    def _groups(self, rows: pa.Table) -> tuple[Array, list[tuple[Any, ...]]]:
        """A dense group number per row, and the partition tuple of each group."""
        groups: Array = np.zeros(rows.num_rows, dtype=np.int64)
        members: list[list[Any]] = [[]]
        for part, source in zip(self._spec.fields, self._sources, strict=True):
            codes, values = _coded(part, source, rows)
            groups, found = _densified(groups * len(values) + codes, len(members) * len(values))
            members = [[*members[code // len(values)], values[code % len(values)]] for code in found]
        return groups, [tuple(member) for member in members]


def _coded(part: PartitionField, source: SourceColumn | None, rows: pa.Table) -> tuple[Array, list[Any]]:
    """The partition values of one field as codes, with the values that the codes stand for.

    `source` None: a void field, whose column may have been dropped.
    """
    if source is None:
        return np.zeros(rows.num_rows, dtype=np.int64), [None]
    array = plain_array(transform_array(part.transform, source.of(rows).combine_chunks(), source.type))
    plain_type = array.type
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.int64), [None]
    if pa.types.is_integer(array.type) or pa.types.is_date32(array.type):
        values = integers(array).astype(np.int64)
        low, high = int(values.min()), int(values.max())
        if high - low < _DIRECT_SPAN:
            codes: Array = values - low
            domain: list[Any] = list(range(low, high + 1))
            if array.null_count:
                codes[array.is_null().to_numpy(zero_copy_only=False)] = len(domain)
                domain.append(None)
            return codes, domain
    if pa.types.is_floating(array.type):
        array = _float_bits(array)
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    dictionary = (
        encoded.dictionary.view(plain_type) if pa.types.is_floating(plain_type) else encoded.dictionary
    )
    result_type = part.transform.result_type(source.type)
    return encoded.indices.to_numpy().astype(np.int64), partition_values(dictionary, result_type)


def _densified(codes: Array, size: int) -> tuple[Array, list[int]]:
    """Codes below `size` renumbered without gaps, and the old code of each new one, ascending."""
    if size > 4 * len(codes) + _DIRECT_SPAN:
        found, dense = np.unique(codes, return_inverse=True)
        return dense, found.tolist()
    found = np.flatnonzero(np.bincount(codes, minlength=size))
    if len(found) == size:
        return codes, list(range(size))
    renumbered: Array = np.zeros(size, dtype=np.int64)
    renumbered[found] = np.arange(len(found))
    return renumbered[codes], found.tolist()


def _changes(groups: Array) -> int:
    return int(np.count_nonzero(groups[1:] != groups[:-1]))


def _runs(groups: Array, numbers: Array) -> list[PartitionRun]:
    edges: Array = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    starts = np.concatenate([[0], edges])
    stops = np.concatenate([edges, [len(groups)]])
    found = numbers[groups[starts]]
    return list(map(PartitionRun, found.tolist(), starts.tolist(), stops.tolist()))


def _brought_together(rows: pa.Table, groups: Array, numbers: Array) -> Piece:
    order = np.argsort(groups, kind="stable")
    return rows.take(pa.array(order)), _runs(groups[order], numbers)


def _float_bits(array: pa.Array) -> pa.Array:
    """Floats as their bits, so that -0.0 and 0.0 are two values and NaN is one."""
    width = array.type.bit_width
    floats = array.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    floats[np.isnan(floats)] = np.nan
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(floats.view(np.int64 if width == 64 else np.int32), mask=mask)
