"""The enumerator: from the offset of a stream to the next one, and from two offsets to splits.

    next(known) -> the snapshots after it -> as many files, rows, bytes as the limits allow -> the next offset
    splits(start, end) -> parts of files in planning order -> splits, combined by size

Called on the driver only. Its state is what it has planned ahead; everything else is in the offsets.
Invariants: the splits of a micro-batch depend on its two offsets only, so that a replay reads the same rows,
whatever was committed to the table meanwhile; nothing between two offsets is left out or comes twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from streamlake.errors import InvalidOptionError, LineageError, SourceError
from streamlake.pipeline.iceberg import source_findings
from streamlake.pipeline.iceberg.batch_budget import BatchBudget
from streamlake.pipeline.iceberg.lineage_path import Gap
from streamlake.pipeline.iceberg.planned_changes import PlannedChanges
from streamlake.pipeline.iceberg.planned_parts import PlannedParts, SnapshotShare
from streamlake.pipeline.iceberg.source_table import SourceTable
from streamlake.pipeline.iceberg.stream_lag import StreamLag, lag_of
from streamlake.read.changes.change_range import UNCHANGED
from streamlake.read.changes.change_splits import combined_in_order, gathered_pieces
from streamlake.read.splits.scan_split import combined
from streamlake.read.splits.split_protocols import TaskScan, TaskSplit
from streamlake.source.iceberg.iceberg_options import ReadLimits
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import (
    FilePosition,
    SnapshotPosition,
    SplitPlanning,
    TableOffset,
)
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table

_LOG = logging.getLogger(__name__)
_BEGINNING = FilePosition()
_COUNTED = ("added-records", "deleted-records", "added-delete-files")


class SnapshotEnumerator:
    """Discovers and plans for one stream. Not thread-safe.

    `schema_id`: the schema that all rows are read with (None: the table's current one, micro-batch by
    micro-batch). `has_row_ids`: see SourceTable. Raises InvalidOptionError, FeatureUnsupportedError for
    options that a stream does not have.
    """

    def __init__(
        self,
        table: Table,
        source: IcebergSource,
        *,
        schema_id: int | None = None,
        has_row_ids: bool | None = None,
    ) -> None:
        self._source = source.as_stream(can_hold=True)
        self._table = SourceTable(table, self._source, has_row_ids=has_row_ids)
        self._schema_id = schema_id
        self._parts = PlannedParts(self._table)
        self._changes = PlannedChanges(self._table, self._parts)

    def first(self, *, target: int | None = None, limits: ReadLimits | None = None) -> TableOffset:
        """The first offset of a new stream: it says where the stream begins, and where its first batch ends.

        `target` and `limits` as for `next`. Where the very first snapshot cannot be read the batch is empty,
        and `next` raises why. Raises InvalidOptionError for a start or an end that the table does not have.
        """
        self._table.refresh()
        # What was committed after the target does not count: the stream would begin beyond its end.
        start = replace(self._table.bounds, newest=target).start()
        planning = self._table.planning(self._schema_id)
        self._check_fits(planning)
        begin = TableOffset(self._table.table.uuid, start, 0, planning)
        self._parts.clear()
        self._changes.clear()
        try:
            end = self._advanced(begin, target, limits or self._source.settings.limits)
        except LineageError:
            end = begin
        return replace(end, start=start)

    def next(
        self, known: TableOffset, *, target: int | None = None, limits: ReadLimits | None = None
    ) -> TableOffset:
        """Where the micro-batch after `known` ends; `known` itself where there is nothing new.

        `target` is the id of the last snapshot to read (None: the branch's newest, or the end that the
        options give); `limits` None: those of the options. Raises LineageError where the table's history does
        not go on from `known`, or has a snapshot that deletes and may not.
        """
        self._table.refresh()
        self._parts.forget_before(known.position)
        end = self._advanced(known, target, limits or self._source.settings.limits)
        return end if end.lost or end.position != known.position else known

    def splits(
        self, start: TableOffset | None, end: TableOffset, *, in_order: bool = False
    ) -> list[TaskSplit]:
        """The splits of the micro-batch after `start` (None: the first one) up to `end`.

        Always the same for the same offsets. `in_order`: each split follows in planning order on the one
        before it; those of changes always do. Raises LineageError when a snapshot of the micro-batch is gone,
        or when the source has another filter or another read mode than the micro-batch was planned with.
        """
        begin = end.start if start is None else start.position
        if begin is None:
            raise SourceError(
                "the checkpoint's first source offset does not say where the stream begins; restore the "
                "whole "
                "checkpoint directory from a copy, or start with a new one"
            )
        self._check_uuid(end)
        if end.planning.filter_digest != self._source.filter_digest:
            raise source_findings.other_filter(self._table.table.name)
        self._check_mode(end.planning, self._source.settings.read_mode)
        if end.lost:
            return []
        self._table.refresh_for(end.position.snapshot_id)
        planning = end.planning
        shares = self._shares(begin, end.position, planning)
        if planning.read_mode == "changes":
            ordinal = 0 if start is None else start.ordinal
            pieces = gathered_pieces(self._changes.pieces(shares, planning, ordinal))
            return list(combined_in_order(pieces, planning.split_size, planning.split_file_open_cost))
        parts = (part for share in shares for part in self._parts.within(share, planning))
        lookback = 0 if in_order else planning.split_lookback
        return list(combined(parts, planning.split_size, lookback, planning.split_file_open_cost))

    def split_scan(self, end: TableOffset) -> TaskScan:
        """What reads the splits of the micro-batch that ends at `end`."""
        return self._table.split_scan(end.planning)

    def selected(self, end: TableOffset) -> Schema:
        """The table's columns in the micro-batch that ends at `end`."""
        return self._table.selected(end.planning)

    def paired_by(self, end: TableOffset) -> tuple[str, ...]:
        """The columns by which changes of the micro-batch that ends at `end` are paired; none: by row ids, or
        not at all.
        """
        names = self._table.schema(end.planning).names_by_id
        return tuple(names[part] for part in end.planning.pairing.key_ids)

    def columns(self) -> Schema:
        """The columns that rows have by now. Raises InvalidOptionError where the options do not fit."""
        planning = self._table.planning(self._schema_id)
        self._check_fits(planning)
        return self._table.rows(planning)

    def require_fit(self) -> None:
        """Raises InvalidOptionError where columns, filter or watermark column do not fit the schema."""
        self._check_fits(self._table.planning(self._schema_id))

    def ask_at_once(self) -> None:
        """Ask the table for news at the next call, however short ago that was done. For any thread."""
        self._table.ask_at_once()

    def head(self) -> int | None:
        """The id of the branch's newest snapshot, as far as is known; None: it has none."""
        self._table.refresh()
        head = self._table.bounds.head()
        return None if head is None else head.snapshot_id

    def due(self, known: TableOffset) -> list[Snapshot]:
        """The snapshots that are left to read, oldest first; one that is half read comes first.

        Raises LineageError where the history does not go on from `known`.
        """
        self._check_uuid(known)
        self._table.refresh()
        return self._table.lineage.path(known.position, self._last(known.position, None))

    def lag(self, known: TableOffset) -> StreamLag:
        """How far the stream is behind. Raises LineageError where the history does not go on from `known`."""
        position, path = known.position, self.due(known)
        metadata = self._table.table.metadata
        before = path[0].parent_snapshot_id if path and position.within is not None else position.snapshot_id
        if path and position.is_scan:
            before = None  # no snapshot has been read in full
        changes = known.planning.read_mode == "changes"
        return lag_of(position, None if before is None else metadata.snapshot(before), path, changes=changes)

    def is_finished(self, known: TableOffset) -> bool:
        """Whether the stream has an end and has reached it."""
        settings = self._source.settings
        position = known.position
        if not settings.has_end or position.within is not None or position.snapshot_id is None:
            return False
        # The end may have expired once it was reached.
        if position.snapshot_id == settings.end_snapshot_id:
            return True
        end = self._table.bounds.end()
        return end is not None and end.snapshot_id == position.snapshot_id

    def has_come_to(self, target: int, known: TableOffset) -> bool:
        """Whether everything up to a snapshot is read. Once it is not of the branch any more, because that
        was rolled back, the branch's newest one takes its place.
        """
        position = known.position
        if position.within is not None:
            return False
        if position.snapshot_id == target:
            return True
        head = self._table.bounds.head()
        return (
            head is not None
            and position.snapshot_id == head.snapshot_id
            and not self._table.lineage.is_before(target, head.snapshot_id)
        )

    def _advanced(self, known: TableOffset, target: int | None, limits: ReadLimits) -> TableOffset:
        self._check_uuid(known)
        position = known.position
        if self.is_finished(known) or (
            target is not None and position == replace(position, snapshot_id=target, within=None)
        ):
            return known
        end = self._last(position, target)
        lineage = self._table.lineage
        if not self._source.settings.fail_on_data_loss:
            gap = lineage.gap(position, end)
            if gap is not None:
                return self._past(known, gap)
        return self._taken(known, lineage.path(position, end), limits)

    def _last(self, position: SnapshotPosition, target: int | None) -> Snapshot | None:
        """The last snapshot that may be read: the end of the stream, the target, or the branch's newest
        one.
        """
        end = self._table.bounds.end()
        lineage = self._table.lineage
        if end is not None:
            if position.snapshot_id is not None and lineage.is_before(end.snapshot_id, position.snapshot_id):
                raise InvalidOptionError(
                    f"table {self._table.table.name}: the stream has read up to snapshot "
                    f"{position.snapshot_id} "
                    f"already, which comes after the end (snapshot {end.snapshot_id}); choose a later end, "
                    f"or "
                    "a new checkpoint directory"
                )
            return end
        head = self._table.bounds.head()
        if target is not None and head is not None and lineage.is_before(target, head.snapshot_id):
            return self._table.table.metadata.snapshot(target)
        return head

    def _taken(self, known: TableOffset, path: list[Snapshot], limits: ReadLimits) -> TableOffset:
        """The offset after as much of the snapshots as the limits allow."""
        position, step, ordinal = known.position, known.step, known.ordinal
        planning, is_old = self._planning_after(known)
        budget = BatchBudget(limits)
        for snapshot in path:
            is_resumed = snapshot.snapshot_id == known.position.snapshot_id
            within = known.position.within if is_resumed else None
            is_scan = is_resumed and known.position.is_scan
            if not budget.take_snapshot():
                break
            is_read = is_resumed or _is_read(snapshot, planning)
            cut = None
            if is_read:
                share = SnapshotShare(snapshot, is_scan, is_resumed, _BEGINNING if within is None else within)
                cut = self._cut(share, planning, budget) if limits.cuts_snapshots else None
            elif not self._passes_over(snapshot):
                if position == known.position:
                    raise source_findings.undone(self._table.table.name, snapshot)
                # What comes before it is read first.
                break
            if cut is not None and not is_resumed and cut == _BEGINNING:
                break
            position = _reached(snapshot, cut, is_scan=is_scan)
            step += not is_resumed
            ordinal += is_read and cut is None and planning.read_mode == "changes"
            if cut is not None or (is_resumed and (is_old or planning.pairing.is_net)):
                # What is netted are whole snapshots.
                break
        if position != known.position:
            self._check_fits(planning)
        return TableOffset(known.table_uuid, position, step, planning, ordinal=ordinal)

    def _cut(self, share: SnapshotShare, planning: SplitPlanning, budget: BatchBudget) -> FilePosition | None:
        """Where the budget ends within a snapshot; None: it takes all that is left."""
        snapshot = share.snapshot
        if not share.is_resumed:
            if planning.read_mode == "changes" and not self._changes.is_cut(snapshot, planning):
                return None if budget.take_changes(self._changes.of(snapshot, planning)) else _BEGINNING
            if budget.take_all(snapshot):
                return None
        for numbered in self._parts.since(share, planning):
            if not budget.take(snapshot.snapshot_id, numbered):
                return numbered.at
        return None

    def _check_fits(self, planning: SplitPlanning) -> None:
        """Raises InvalidOptionError for a filter or columns that do not fit, before they are in an offset."""
        self._table.filter(planning)
        self._table.split_scan(planning)

    def _passes_over(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot that is no append is left out; what it changed is logged."""
        if snapshot.operation == "replace":
            return True
        if not self._source.settings.skips_deletes:
            return False
        _LOG.warning(
            "table %s: snapshot %s (%s) is passed over, because on-delete is skip: added-records=%s, "
            "deleted-records=%s, added-delete-files=%s",
            self._table.table.name,
            snapshot.snapshot_id,
            snapshot.operation,
            *(snapshot.summary.get(key, "0") for key in _COUNTED),
        )
        return True

    def _past(self, known: TableOffset, gap: Gap) -> TableOffset:
        """The offset after snapshots that have expired, which are left out."""
        _LOG.warning(
            "table %s: %s snapshots or more after %s have expired before they were read and are left out, "
            "because "
            "fail-on-data-loss is false; the stream goes on with snapshot %s",
            self._table.table.name,
            gap.lost,
            known.position.snapshot_id,
            gap.oldest.snapshot_id,
        )
        before = gap.oldest.parent_snapshot_id
        position = SnapshotPosition(before, sequence_number=max(0, gap.oldest.sequence_number - 1))
        planning = self._table.planning(self._schema_id)
        step, ordinal = known.step + 1, known.ordinal
        return TableOffset(known.table_uuid, position, step, planning, lost=gap.lost, ordinal=ordinal)

    def _planning_after(self, known: TableOffset) -> tuple[SplitPlanning, bool]:
        """What the next micro-batch is planned with, and whether that is how a half-read snapshot was begun.

        Positions in a half-read snapshot mean something only with the order and the sizes that it was begun
        with, so these stay until its end.
        """
        now, before = self._table.planning(self._schema_id), known.planning
        if known.position.within is None:
            return now, False
        self._check_mode(before, now.read_mode)
        kept = replace(now, split_size=before.split_size, order_by=before.order_by)
        return kept, kept != now

    def _shares(
        self, begin: SnapshotPosition, end: SnapshotPosition, planning: SplitPlanning
    ) -> Iterator[SnapshotShare]:
        """What a micro-batch that was planned before reads of each snapshot, oldest first."""
        for snapshot in self._table.lineage.between(begin, end):
            is_resumed = snapshot.snapshot_id == begin.snapshot_id
            # Others were passed over when the micro-batch was planned, whatever the options are now.
            if not (is_resumed or _is_read(snapshot, planning)):
                continue
            yield SnapshotShare(
                snapshot,
                is_scan=is_resumed and begin.is_scan,
                is_resumed=is_resumed,
                first=begin.within if is_resumed and begin.within is not None else _BEGINNING,
                until=end.within if snapshot.snapshot_id == end.snapshot_id else None,
            )

    def _check_mode(self, before: SplitPlanning, now: str) -> None:
        if before.read_mode != now:
            raise source_findings.other_mode(self._table.table.name, before.read_mode, now)

    def _check_uuid(self, offset: TableOffset) -> None:
        now = self._table.table.uuid
        if offset.table_uuid != now:
            raise source_findings.replaced(self._table.table.name, offset.table_uuid, now)


def _reached(snapshot: Snapshot, cut: FilePosition | None, *, is_scan: bool) -> SnapshotPosition:
    """The position at `cut` in a snapshot; after it, where it is not cut."""
    return SnapshotPosition(
        snapshot.snapshot_id,
        cut,
        is_scan=is_scan and cut is not None,
        sequence_number=snapshot.sequence_number,
    )


def _is_read(snapshot: Snapshot, planning: SplitPlanning) -> bool:
    """Whether a snapshot's own rows are read: those of appends, and as changes of all but compactions."""
    if planning.read_mode == "changes":
        return snapshot.operation not in UNCHANGED
    return snapshot.operation == "append"
