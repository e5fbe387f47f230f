"""The offsets of a query that reads a table directly, and the splits of its micro-batches; see
`PlannedOffsets`.

The table is asked for news at most once per monitor interval, however often Spark ticks. Where the target's
schema does not follow the source's, all rows are read with the columns that the stream began with; see
`source_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError
from streamlake.failpoints import failpoint
from streamlake.pipeline.direct.offset_log import OffsetForm, OffsetLog
from streamlake.pipeline.direct.planned_offsets import PlannedOffsets
from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.pipeline.iceberg.source_columns import SourceColumns, source_columns
from streamlake.pipeline.iceberg.source_table import has_row_ids_now
from streamlake.pipeline.iceberg.starting_position import Bounds
from streamlake.pipeline.iceberg.stream_hold import StreamHold
from streamlake.pipeline.iceberg.table_cursor import TableCursor
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.pipeline.spark.query_identity import job_of
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table
from streamlake.tasks.split_tasks import SplitRows

TABLE_OFFSETS = OffsetForm(
    "its source table",
    TableOffset.from_json,
    "a start after what the target has: start-snapshot-id, or "
    "starting-strategy=incremental-from-latest-snapshot-exclusive where all of it is there",
)


@dataclass(frozen=True)
class Pieces:
    """What one micro-batch reads: splits, what reads them, and the columns of the rows. `first_ordinal` is
    the number of its first snapshot where rows are changes, `is_net` whether these are netted, and
    `paired_by` are the columns by which they are paired.
    """

    scan: SplitRows
    splits: Sequence[Any]
    columns: SourceColumns
    first_ordinal: int = 0
    is_net: bool = False
    paired_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeptColumns:
    """What the columns of a stream stay, whatever its table gets: see SnapshotEnumerator. None: they are
    those of the table.
    """

    schema_id: int | None = None
    has_row_ids: bool | None = None


def opened_source(source: IcebergSource) -> Table:
    """The table of a source, through an outage. Raises TableNotFoundError."""
    return OutageRetry(dict).through(lambda: open_table(str(source.location), source.catalog))


class TableOffsets(PlannedOffsets[TableOffset]):
    """The offsets of one query over `table`.

    `is_bounded`: the query ends with what is there now. Raises InvalidOptionError for options that do not fit
    the table.
    """

    form = TABLE_OFFSETS

    def __init__(
        self,
        table: Table,
        source: IcebergSource,
        log: OffsetLog[TableOffset],
        interval_ms: int,
        *,
        is_bounded: bool,
        kept: KeptColumns,
    ) -> None:
        super().__init__(log, interval_ms)
        self._source = source
        self._table = table
        self._retry = OutageRetry(lambda: table.properties)
        self._is_bounded = is_bounded
        self._enumerator = SnapshotEnumerator(
            table, source, schema_id=kept.schema_id, has_row_ids=kept.has_row_ids
        )
        self._target = self._retry.through(self._enumerator.head) if is_bounded else None
        self._cursor = TableCursor(self._enumerator, target=self._target)
        self._hold = StreamHold(source) if source.settings.hold_snapshots else None

    @property
    def has_end(self) -> bool:
        """See PlannedOffsets."""
        return self._is_bounded or self._source.settings.has_end

    def plan(
        self, frame: DataFrame, checkpoint_id: int, while_idle: Callable[[], None] = lambda: None
    ) -> None:
        """See PlannedOffsets. Raises InvalidOptionError where snapshots are to be held and cannot be."""
        if self._hold is not None:
            job_id = job_of(frame.sparkSession) or ""
            self._retry.through(partial(self._hold.begin, job_id, checkpoint_id, self._log.read))
        super().plan(frame, checkpoint_id, while_idle)
        if self._hold is not None and self._end is not None:
            self._hold.planned(checkpoint_id, self._end)

    def committed(self, receipt: CommitReceipt) -> None:
        """Note what the sink has committed. For any thread."""
        if self._hold is not None:
            self._hold.committed(receipt)

    def pieces(self, identity: CheckpointIdentity, *, in_order: bool) -> Pieces:
        """What a checkpoint reads; the same each time. `in_order`: each split follows on the one before it.

        Raises InvalidOptionError for a checkpoint of another kind of query, LineageError when its snapshots
        have expired.
        """
        start, end = self.between(identity)

        def planned() -> Pieces:
            splits = self._cursor.splits(start, end, in_order=in_order)
            scan = self._enumerator.split_scan(end)
            selected = self._enumerator.selected(end)
            columns = source_columns(self._table.metadata, start, end, selected, scan.arrow_schema)
            ordinal = 0 if start is None else start.ordinal
            paired_by = self._enumerator.paired_by(end)
            return Pieces(scan, splits, columns, ordinal, end.planning.pairing.is_net, paired_by)

        found = self._retry.through(planned)
        failpoint("splits-planned")
        return found

    def now(self) -> Callable[[TableOffset | None], bool]:
        """See PlannedOffsets; from a table of its own. The query asks the table at once."""
        table = open_table(str(self._source.location), self._source.catalog)
        bounds = Bounds(table.name, table.location, table.metadata, self._source.settings)
        last = bounds.end() or bounds.head()
        self._enumerator.ask_at_once()
        read = self._table
        return lambda done: done is not None and (last is None or _has_read(done, last, read))

    def interrupt(self) -> None:
        """See PlannedOffsets."""
        self._retry.stop()

    def close(self) -> None:
        """See PlannedOffsets; there is no connection."""

    def _open(self, known: TableOffset | None) -> None:
        self._cursor = TableCursor(self._enumerator, known=known, target=self._target)

    def _latest(self) -> TableOffset:
        if self._hold is not None:
            self._hold.keep()
        return self._retry.through(self._cursor.latest)

    def _is_done(self, offset: TableOffset) -> bool:
        if self._is_bounded and self._target is None:
            is_done = offset.position.snapshot_id is None
        else:
            is_done = self._cursor.is_done
        if is_done and self._hold is not None:
            self._hold.settle(offset, is_finished=self._enumerator.is_finished(offset))
        return is_done


def table_offsets(
    log: OffsetLog[TableOffset], table: Table, source: IcebergSource, kept: KeptColumns
) -> Callable[[int, bool], TableOffsets]:
    """What gives the offsets of a query with this log; see `direct_stream`."""
    return lambda interval_ms, is_bounded: TableOffsets(
        table, source, log, interval_ms, is_bounded=is_bounded, kept=kept
    )


def kept_columns(table: Table, source: IcebergSource, known: TableOffset | None) -> KeptColumns:
    """The columns that a stream began with, whose last offset is `known` (None: it begins now)."""
    if known is None or known.planning.read_mode != source.settings.read_mode:
        has_row_ids = has_row_ids_now(table)
    else:
        has_row_ids = known.planning.pairing.has_row_ids
    return KeptColumns(_kept_schema_id(table, source, known), has_row_ids)


def _kept_schema_id(table: Table, source: IcebergSource, known: TableOffset | None) -> int:
    """The id of the schema that the stream began with; that of the newest one where the source names columns
    by now that the former lacks.
    """
    if known is None:
        return table.schema.schema_id
    metadata = table.metadata
    if all(each.schema_id != known.planning.schema_id for each in metadata.schemas):
        return table.schema.schema_id
    try:
        SnapshotEnumerator(table, source, schema_id=known.planning.schema_id).require_fit()
    except InvalidOptionError:
        return table.schema.schema_id
    return known.planning.schema_id


def _has_read(done: TableOffset, last: Snapshot, table: Table) -> bool:
    position = done.position
    if position.within is not None or position.snapshot_id is None:
        return False
    if position.snapshot_id == last.snapshot_id:
        return True
    if last.sequence_number:
        return (position.sequence_number or 0) >= last.sequence_number
    # Tables of format version 1 have no sequence numbers.
    return any(
        each.snapshot_id == last.snapshot_id for each in table.metadata.ancestors(position.snapshot_id)
    )
