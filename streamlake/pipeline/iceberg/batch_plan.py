"""A batch read of a source: planned once, from one version of the table.

Either the rows of one snapshot (snapshot-id, tag, branch, as-of-timestamp, else the current one), or the rows
that were appended between two (start-..., end-...), the first excluded, as Iceberg's batch reads have it.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.errors import FeatureUnsupportedError
from streamlake.pipeline.iceberg.source_table import SourceTable
from streamlake.pipeline.iceberg.starting_position import Bounds
from streamlake.read.incremental import IncrementalAppendScan
from streamlake.read.scan import Scan, TableScan
from streamlake.read.splits.data_file_parts import file_parts
from streamlake.read.splits.scan_split import ScanSplit, combined
from streamlake.read.splits.split_scan import SplitScan
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.table.table import Table


@dataclass(frozen=True)
class BatchPlan:
    """What a batch reads: splits, and what reads them."""

    scan: SplitScan
    splits: tuple[ScanSplit, ...]


def batch_plan(table: Table, source: IcebergSource) -> BatchPlan:
    """Plan a batch on the table as it was last read.

    Raises InvalidOptionError for options of streams and for what the table does not have, and
    FeatureUnsupportedError where rows were deleted between two snapshots, unless on-delete is skip.
    """
    source.as_batch()
    if source.settings.read_mode == "changes":
        raise FeatureUnsupportedError(
            "IcebergSource: read-mode=changes is not supported yet in a batch; read-mode=append reads what "
            "was "
            "added"
        )
    scan = _scan(table, source)
    planning = SourceTable(table, source).planning(scan.schema.schema_id)
    parts = (part for task in scan.plan_files() for part in file_parts(task, planning.split_size))
    return BatchPlan(
        SplitScan.of_table(table.metadata, table.io, scan.schema, source.columns_for(scan.schema)),
        tuple(combined(parts, planning.split_size, planning.split_lookback, planning.split_file_open_cost)),
    )


def _scan(table: Table, source: IcebergSource) -> Scan:
    settings = source.settings
    bounds = Bounds(table.name, table.location, table.metadata, settings)
    if settings.has_start or settings.has_end:
        schema = table.schema
        end = bounds.end() or bounds.head()
        return IncrementalAppendScan(
            table,
            _start_id(bounds, end),
            None if end is None else end.snapshot_id,
            source.filter_for(schema),
            source.columns_for(schema),
            skip_overwrites=settings.skips_deletes,
        )
    if settings.branch != MAIN_BRANCH:
        bounds.head()
    ref = settings.tag or (settings.branch if settings.branch != MAIN_BRANCH else None)
    chosen = TableScan(
        table,
        snapshot_id=settings.snapshot_id,
        as_of=settings.as_of_timestamp_ms,
        ref=ref,
    )
    schema = chosen.schema
    return TableScan(
        table,
        source.filter_for(schema),
        source.columns_for(schema),
        settings.snapshot_id,
        settings.as_of_timestamp_ms,
        ref,
    )


def _start_id(bounds: Bounds, end: Snapshot | None) -> int | None:
    """The snapshot after which a batch begins; None: at the table's beginning."""
    settings = bounds.settings
    if settings.start_timestamp_ms is not None:
        return bounds.before(settings.start_timestamp_ms, end)
    if settings.start_tag is not None:
        return bounds.start_by_id().snapshot_id
    # It may have expired, as long as the next one has not.
    return settings.start_snapshot_id
