"""Partition tuples as dictionary keys, and the check whether a manifest can hold a given partition.

Used where partitions are compared (replaced partitions, conflict validation) or counted.
Invariant: two tuples have the same key exactly when Iceberg considers them the same partition (NaN
equals NaN, -0.0 and 0.0 differ).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import FieldSummary, ManifestFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.types.data_types import IcebergType
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.values import from_bytes

PartitionKey = tuple[int, tuple[Any, ...]]


def partition_key(spec_id: int, partition: Iterable[Any]) -> PartitionKey:
    """A hashable key of one partition of one spec."""
    return spec_id, tuple(
        ("float", repr(value)) if isinstance(value, float) else value for value in partition
    )


class PartitionPaths:
    """The hive-style paths of partitions under their own specs; each path is built once."""

    def __init__(self, base: TableMetadata) -> None:
        self._base = base
        self._paths: dict[PartitionKey, str] = {}

    def path_of(self, file: DataFile) -> str:
        """The hive-style path of a file's partition."""
        key = partition_key(file.spec_id, file.partition)
        if key not in self._paths:
            spec = self._base.spec_by_id(file.spec_id)
            self._paths[key] = spec.partition_path(file.partition, self._base.schema)
        return self._paths[key]


def may_contain(
    manifest: ManifestFile, partitions: Iterable[tuple[Any, ...]], spec: PartitionSpec, schema: Schema
) -> bool:
    """Whether a file of one of `partitions` (tuples of `spec`) can be in the manifest, by its summaries."""
    if not manifest.partitions:
        return True
    types = [part.type for part in spec.partition_type(schema).fields]
    ranges = [_Range(summary, type_) for summary, type_ in zip(manifest.partitions, types, strict=True)]
    return any(
        all(held.may_hold(value) for held, value in zip(ranges, partition, strict=True))
        for partition in partitions
    )


class _Range:
    """The values of one partition field in a manifest, from its summary."""

    def __init__(self, summary: FieldSummary, type_: IcebergType) -> None:
        self._summary = summary
        self._bounds: tuple[Any, Any] | None = None
        if summary.lower_bound is not None and summary.upper_bound is not None:
            self._bounds = from_bytes(type_, summary.lower_bound), from_bytes(type_, summary.upper_bound)

    def may_hold(self, value: Any) -> bool:
        if value is None:
            return self._summary.contains_null
        if isinstance(value, float) and math.isnan(value):
            return self._summary.contains_nan is not False
        if self._bounds is None:
            return False
        if isinstance(value, UUID):
            # Iceberg's Java library orders UUIDs in bounds differently from their bytes.
            return True
        return bool(self._bounds[0] <= value <= self._bounds[1])
