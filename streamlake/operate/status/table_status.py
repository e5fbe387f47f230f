"""The status of a stream in one table, from the table's metadata: its last commit, its pace, its rejects.

It needs neither Spark nor a broker; `status` adds what the broker says. Invariant: only metadata is read,
whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake import clock
from streamlake.catalog.open import CatalogOption, open_table
from streamlake.commit.marker import JOB_ID, MAX_COMMITTED_CHECKPOINT_ID, PIPELINE
from streamlake.commit.offset_summary import committed_offsets, committed_table_offset
from streamlake.commit.receipt import TOMBSTONES
from streamlake.errors import TableNotFoundError
from streamlake.maintain.care import kinds_of_care
from streamlake.pipeline.runs.rejected.rejects_table import rejects_name
from streamlake.pipeline.runs.rejects import REJECTED_RECORDS
from streamlake.read.row_counts import row_counts
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.source.offsets import PartitionOffsets
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.table.table import Table
from streamlake.tasks.watermarks import WATERMARK

SNAPSHOTS_OF_PACE = 20


@dataclass(frozen=True)
class StatusTarget:
    """A table that a pipeline writes. `pipeline` None: the stream that has committed to the branch last."""

    table: str
    catalog: CatalogOption = None
    branch: str = MAIN_BRANCH
    pipeline: str | None = None


@dataclass(frozen=True)
class TableStatus:
    """What a table records about a stream.

    Without `exists` there is no table yet; without `checkpoint_id` all commits of the stream have expired, or
    there were none. `rows_per_second` is over the stream's last SNAPSHOTS_OF_PACE snapshots. `records`,
    `data_files` and `delete_files` are the branch's; `records` counts the rows in data files, deleted ones
    too. `live_rows` are without these (None: not known, see `row_counts`), and no more than
    `live_rows_at_most`; `deleted_rows` are those deleted by position. `rejected` counts over the stream's
    snapshots that are still there; `rejects` counts the rows of the rejects table (None: there is none).
    `offsets` is the next offset of each partition, `source_offset` how far a table was read (None: neither is
    recorded); `offsets_per_second` is the pace of `offsets` over the same snapshots. `needs_care` has the
    kinds of what the table needs care for, such as `many-snapshots`.
    """

    table: str
    branch: str
    exists: bool = False
    pipeline: str | None = None
    job_id: str | None = None
    checkpoint_id: int | None = None
    snapshot_id: int | None = None
    committed_ms: int | None = None
    seconds_since_commit: float | None = None
    rows_per_second: float | None = None
    records: int | None = None
    live_rows: int | None = None
    live_rows_at_most: int | None = None
    deleted_rows: int | None = None
    data_files: int | None = None
    delete_files: int | None = None
    rejected: int = 0
    rejects: int | None = None
    tombstones: int = 0
    watermark_ms: int | None = None
    offsets_per_second: float | None = None
    offsets: PartitionOffsets | None = None
    source_offset: TableOffset | None = None
    needs_care: tuple[str, ...] = ()


def table_status(target: StatusTarget, job_id: str | None = None, since_ms: int | None = None) -> TableStatus:
    """The table's status now.

    With `job_id` only that job's commits count, else those of the target's pipeline. Only commits after
    `since_ms` count for the pace in offsets. Raises the errors of
    opening the table, except that it does not exist.
    """
    try:
        table = open_table(target.table, target.catalog)
    except TableNotFoundError:
        return TableStatus(target.table, target.branch, pipeline=target.pipeline)
    head = table.metadata.head(target.branch)
    totals = {} if head is None else head.summary
    rows = row_counts(totals)
    commits = _commits(table, target, job_id)
    last = commits[0] if commits else None
    recorded = {} if last is None else last.summary
    return TableStatus(
        table=target.table,
        branch=target.branch,
        exists=True,
        pipeline=recorded.get(PIPELINE, target.pipeline),
        job_id=recorded.get(JOB_ID),
        checkpoint_id=_number(recorded, MAX_COMMITTED_CHECKPOINT_ID),
        snapshot_id=None if last is None else last.snapshot_id,
        committed_ms=None if last is None else last.timestamp_ms,
        seconds_since_commit=None if last is None else _seconds_since(last.timestamp_ms),
        rows_per_second=_pace(commits),
        records=rows.written,
        live_rows=rows.live,
        live_rows_at_most=rows.at_most,
        deleted_rows=rows.deleted,
        data_files=_number(totals, "total-data-files"),
        delete_files=_number(totals, "total-delete-files"),
        rejected=sum(_number(each.summary, REJECTED_RECORDS) or 0 for each in commits),
        rejects=_rejects(target),
        tombstones=sum(_number(each.summary, TOMBSTONES) or 0 for each in commits),
        watermark_ms=_number(recorded, WATERMARK),
        offsets_per_second=_offset_pace(commits, since_ms or 0),
        offsets=committed_offsets(recorded),
        source_offset=committed_table_offset(recorded),
        needs_care=kinds_of_care(table),
    )


def _commits(table: Table, target: StatusTarget, job_id: str | None) -> list[Snapshot]:
    """The stream's snapshots of the branch, newest first."""
    head = table.metadata.head(target.branch)
    ancestors = table.metadata.ancestors(None if head is None else head.snapshot_id)
    marked = [each for each in ancestors if MAX_COMMITTED_CHECKPOINT_ID in each.summary]
    if job_id is not None:
        return [each for each in marked if each.summary.get(JOB_ID) == job_id]
    name = _last_stream(marked) if target.pipeline is None else target.pipeline
    return [each for each in marked if each.summary.get(PIPELINE) == name]


def _last_stream(marked: list[Snapshot]) -> str | None:
    """The pipeline that has committed last, preferring a stream over a replay of its rejects."""
    of_streams = (each for each in marked if _is_of_stream(each.summary))
    last = next(of_streams, marked[0] if marked else None)
    return None if last is None else last.summary.get(PIPELINE)


def _is_of_stream(summary: Mapping[str, str]) -> bool:
    return committed_offsets(summary) is not None or committed_table_offset(summary) is not None


def _pace(commits: list[Snapshot]) -> float | None:
    """Rows per second over the last commits, without the oldest one; None where no time has passed."""
    recent = commits[:SNAPSHOTS_OF_PACE]
    if len(recent) < 2:
        return None
    seconds = (recent[0].timestamp_ms - recent[-1].timestamp_ms) / 1000
    rows = sum(_number(each.summary, "added-records") or 0 for each in recent[:-1])
    return round(rows / seconds, 1) if seconds > 0 else None


def _offset_pace(commits: list[Snapshot], since_ms: int) -> float | None:
    recent = [each for each in commits[:SNAPSHOTS_OF_PACE] if each.timestamp_ms >= since_ms]
    if len(recent) < 2:
        return None
    first, last = committed_offsets(recent[-1].summary), committed_offsets(recent[0].summary)
    seconds = (recent[0].timestamp_ms - recent[-1].timestamp_ms) / 1000
    if first is None or last is None or seconds <= 0:
        return None
    return round(sum(max(0, end - first[part]) for part, end in last.items() if part in first) / seconds, 1)


def _rejects(target: StatusTarget) -> int | None:
    try:
        table = open_table(rejects_name(target.table), target.catalog)
    except TableNotFoundError:
        return None
    snapshot = table.current_snapshot
    if snapshot is None:
        return 0
    return row_counts(snapshot.summary).at_most or 0


def _seconds_since(moment_ms: int) -> float:
    return max(0.0, (clock.now_ms() - moment_ms) / 1000)


def _number(summary: Mapping[str, str], name: str) -> int | None:
    try:
        return int(summary[name])
    except (KeyError, ValueError):
        return None
