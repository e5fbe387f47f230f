"""A batch read of a source: planned once, from one version of the table.

Either the rows of one snapshot (snapshot-id, tag, branch, as-of-timestamp, else the current one), or the rows
that were appended between two (start-..., end-...), the first excluded, as Iceberg's batch reads have it.
With read-mode=changes it is what was changed between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamlake.pipeline.iceberg.source_table import SourceTable, has_row_ids_now
from streamlake.pipeline.iceberg.starting_position import Bounds
from streamlake.read.changes.change_scan import ChangeScan
from streamlake.read.changes.change_splits import (
    ROWS_PAIRED_AT_ONCE,
    ChangePiece,
    combined_in_order,
    gathered_pieces,
    netted_pieces,
    pieces_of,
)
from streamlake.read.incremental import IncrementalAppendScan
from streamlake.read.scan import Scan, TableScan
from streamlake.read.splits.data_file_parts import file_parts
from streamlake.read.splits.scan_split import combined
from streamlake.read.splits.split_protocols import TaskScan, TaskSplit
from streamlake.read.splits.split_scan import SplitScan
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.table.table import Table


@dataclass(frozen=True)
class BatchPlan:
    """What a batch reads: splits, and what reads them."""

    scan: TaskScan
    splits: tuple[TaskSplit, ...]


@dataclass(frozen=True)
class BatchPoint:
    """Which rows a batch reads, and with which schema, whatever is committed to the table later.

    `snapshot_id` None: the table had no snapshot. With `is_incremental` the rows that were appended after
    `after` (None: since the beginning) up to `snapshot_id`, else all rows of it. `has_row_ids`: changes have
    row ids.
    """

    schema_id: int
    snapshot_id: int | None
    is_incremental: bool = False
    after: int | None = None
    has_row_ids: bool = False


def batch_point(table: Table, source: IcebergSource) -> BatchPoint:
    """What a batch of a source means on the table as it was last read.

    Raises InvalidOptionError for options of streams and for what the table does not have, and
    FeatureUnsupportedError where rows were deleted between two snapshots, unless on-delete is skip.
    """
    settings = source.as_batch().settings
    bounds = Bounds(table.name, table.location, table.metadata, settings)
    if settings.has_start or settings.has_end or settings.read_mode == "changes":
        end = bounds.end() or bounds.head()
        schema_id = table.schema.schema_id
        point = BatchPoint(
            schema_id,
            None if end is None else end.snapshot_id,
            is_incremental=True,
            after=_start_id(bounds, end),
            has_row_ids=has_row_ids_now(table),
        )
        _scan(table, source, point)
        return point
    if settings.branch != MAIN_BRANCH:
        bounds.head()
    ref = settings.tag or (settings.branch if settings.branch != MAIN_BRANCH else None)
    chosen = TableScan(table, snapshot_id=settings.snapshot_id, as_of=settings.as_of_timestamp_ms, ref=ref)
    snapshot = chosen.snapshot
    return BatchPoint(chosen.schema.schema_id, None if snapshot is None else snapshot.snapshot_id)


def batch_plan(table: Table, source: IcebergSource, point: BatchPoint | None = None) -> BatchPlan:
    """Plan a batch, of `point` if it is given. Raises as `batch_point`."""
    if point is None:
        point = batch_point(table, source)
    scan = _scan(table, source, point)
    planning = SourceTable(table, source).planning(point.schema_id)
    reader = batch_scan(table, source, point.schema_id, has_row_ids=point.has_row_ids)
    if isinstance(scan, ChangeScan):
        pieces = () if point.snapshot_id is None else _pieces(scan, source)
        found = combined_in_order(pieces, planning.split_size, planning.split_file_open_cost)
        return BatchPlan(reader, tuple(found))
    tasks = () if point.snapshot_id is None else scan.plan_files()
    parts = (part for task in tasks for part in file_parts(task, planning.split_size))
    return BatchPlan(
        reader,
        tuple(combined(parts, planning.split_size, planning.split_lookback, planning.split_file_open_cost)),
    )


def batch_scan(table: Table, source: IcebergSource, schema_id: int, *, has_row_ids: bool) -> TaskScan:
    """What reads the splits of a batch. `has_row_ids`: see BatchPoint. Raises InvalidOptionError for a column
    that there is not.
    """
    if source.settings.read_mode == "changes":
        read = SourceTable(table, source, has_row_ids=has_row_ids)
        return read.split_scan(read.planning(schema_id))
    schema = table.metadata.schema_by_id(schema_id)
    return SplitScan.of_table(table.metadata, table.io, schema, source.columns_for(schema))


def _pieces(scan: ChangeScan, source: IcebergSource) -> Iterator[ChangePiece]:
    rows_in_memory = ROWS_PAIRED_AT_ONCE if scan.columns.parted_by else None
    plan = scan.plan_changes()
    if source.settings.net_changes:
        return netted_pieces(list(plan), rows_in_memory)
    return gathered_pieces(piece for changes in plan for piece in pieces_of(changes, rows_in_memory))


def _scan(table: Table, source: IcebergSource, point: BatchPoint) -> Scan:
    schema = table.metadata.schema_by_id(point.schema_id)
    filter_, columns = source.filter_for(schema), source.columns_for(schema)
    if source.settings.read_mode == "changes":
        return ChangeScan(
            table,
            point.after,
            point.snapshot_id,
            filter_,
            columns,
            keys=source.identifiers_for(schema),
            schema_id=point.schema_id,
            has_row_ids=point.has_row_ids,
        )
    if point.is_incremental:
        return IncrementalAppendScan(
            table,
            point.after,
            point.snapshot_id,
            filter_,
            columns,
            skip_overwrites=source.settings.skips_deletes,
            schema_id=point.schema_id,
        )
    return TableScan(table, filter_, columns, point.snapshot_id, schema_id=point.schema_id)


def _start_id(bounds: Bounds, end: Snapshot | None) -> int | None:
    """The snapshot after which a batch begins; None: at the table's beginning."""
    settings = bounds.settings
    if settings.start_timestamp_ms is not None:
        return bounds.before(settings.start_timestamp_ms, end)
    if settings.start_tag is not None:
        return bounds.start_by_id().snapshot_id
    # It may have expired, as long as the next one has not.
    return settings.start_snapshot_id
