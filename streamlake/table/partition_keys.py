"""Partition tuples as dictionary keys, and whether a manifest can hold a given partition.

Used where partitions are compared: replaced partitions, conflict validation. Invariant: two tuples have the same
key exactly when Iceberg considers them the same partition (NaN equals NaN, -0.0 and 0.0 differ).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from streamlake.spec.manifest import FieldSummary, ManifestFile
from streamlake.spec.partition_spec import PartitionSpec
from streamlake.spec.schema import Schema
from streamlake.spec.values import from_bytes

PartitionKey = tuple[int, tuple[Any, ...]]


def partition_key(spec_id: int, partition: Iterable[Any]) -> PartitionKey:
    """A hashable key of one partition of one spec."""
    return spec_id, tuple(
        ("float", repr(value)) if isinstance(value, float) else value for value in partition
    )


def may_contain(
    manifest: ManifestFile, partitions: Iterable[tuple[Any, ...]], spec: PartitionSpec, schema: Schema
) -> bool:
    """Whether a file of one of `partitions` (tuples of `spec`) can be in the manifest, by its field summaries."""
    if not manifest.partitions:
        return True
    types = [part.type for part in spec.partition_type(schema).fields]
    for partition in partitions:
        summaries = zip(partition, manifest.partitions, types, strict=True)
        if all(_may_hold(value, summary, type_) for value, summary, type_ in summaries):
            return True
    return False


def _may_hold(value: Any, summary: FieldSummary, type_: Any) -> bool:
    if value is None:
        return summary.contains_null
    if isinstance(value, float) and math.isnan(value):
        return summary.contains_nan is not False
    if summary.lower_bound is None or summary.upper_bound is None:
        return False
    if isinstance(value, UUID):
        # Iceberg's Java library bounds UUIDs in another order than that of their bytes.
        return True
    return bool(from_bytes(type_, summary.lower_bound) <= value <= from_bytes(type_, summary.upper_bound))
