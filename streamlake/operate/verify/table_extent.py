"""The rows of a table that are compared with the table that a stream copies them into, and what is left out.

The sink's newest commit of the stream records how far it has read, so the comparison ends there. What is due
is found without the stream's own planning: all rows of the snapshot that the stream began with, and what
append snapshots after it have added; of changes, the rows of the table as they were at the last snapshot.
Invariant: what is left out, or cannot be compared, is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from streamlake.catalog.open import open_table
from streamlake.commit.marker import MAX_COMMITTED_CHECKPOINT_ID, PIPELINE
from streamlake.commit.offset_summary import START_OFFSETS, committed_table_offset, table_offset
from streamlake.errors import InvalidOptionError
from streamlake.operate.verify.topic_extent import COMMITTED, LATEST
from streamlake.pipeline.iceberg import source_findings
from streamlake.pipeline.iceberg.source_table import SourceTable
from streamlake.pipeline.iceberg.starting_position import Bounds
from streamlake.pipeline.runs.upsert_options import unknown_value
from streamlake.read.column_selection import select_columns
from streamlake.read.incremental import IncrementalAppendScan
from streamlake.read.planning import FileScanTask, ScanPlanner
from streamlake.source.iceberg.iceberg_options import Strategy
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import SnapshotPosition, TableOffset
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.wording import counted

_BY_OPTIONS = (Strategy.EARLIEST, Strategy.SNAPSHOT_ID, Strategy.SNAPSHOT_TIMESTAMP)
"""The strategies that mean the same place later."""


@dataclass(frozen=True)
class TableExtent:
    """The files to read of `table`; `name` is the source's in messages, `columns` are those that are read."""

    table: Table
    name: str
    tasks: tuple[FileScanTask, ...]
    columns: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Commits:
    """What the sink has of the stream: its pipeline, its last offset, where it began (None: not known)."""

    pipeline: str
    last: TableOffset
    start: SnapshotPosition | None


def table_extent(
    source: IcebergSource, metadata: TableMetadata, snapshot: Snapshot | None, until: str
) -> TableExtent:
    """The part of the table that is due in the sink, which has `metadata`, at `snapshot`.

    `until`: `committed` or `latest`. Raises InvalidOptionError where the two cannot be compared, LineageError
    where another table was read, and the errors of opening the table.
    """
    if until not in (COMMITTED, LATEST):
        raise unknown_value("until", until, (COMMITTED, LATEST))
    table = open_table(str(source.location), source.catalog)
    commits = _commits(table, metadata, snapshot)
    notes = [] if commits is None else list(_others(metadata, snapshot, commits.pipeline))
    end, more = _end(table, source, commits, until)
    start = _start(table, source, commits, end)
    if source.settings.read_mode == "changes":
        tasks = _state(table, source, start, end)
    else:
        tasks, also = _appended(table, source, start, end)
        more += also
    schema = table.schema
    columns = select_columns(schema, source.columns_for(schema)).output
    nested = [
        part.name for part in columns.fields if (own := schema.find(part.name)) and own.type != part.type
    ]
    if nested:
        raise InvalidOptionError(
            f"parts of {', '.join(nested)} are read of {table.name}: name the columns to compare in `columns`"
        )
    upto = "which is empty" if end is None else f"up to snapshot {end.snapshot_id}"
    names = tuple(part.name for part in columns.fields if schema.find(part.name) is not None)
    return TableExtent(table, f"table {table.location} {upto}", tuple(tasks), names, (*notes, *more))


def _commits(table: Table, metadata: TableMetadata, snapshot: Snapshot | None) -> _Commits | None:
    """The stream's commits in the sink. Raises LineageError where they are of another table only."""
    ancestry = list(metadata.ancestors(None if snapshot is None else snapshot.snapshot_id))
    offsets = [(each, committed_table_offset(each.summary)) for each in ancestry]
    known = [(each, offset) for each, offset in offsets if offset is not None]
    own = [(each, offset) for each, offset in known if offset.table_uuid == table.uuid]
    if not own:
        if known:
            raise source_findings.replaced(table.name, known[0][1].table_uuid, table.uuid)
        return None
    pipeline = own[0][0].summary.get(PIPELINE, "")
    of_stream = [pair for pair in own if pair[0].summary.get(PIPELINE, "") == pipeline]
    first, offset = of_stream[-1]
    start = offset.start
    if start is None and ancestry[-1].parent_snapshot_id is None:
        # Checkpoints before the first commit have brought nothing.
        before = table_offset(json.loads(first.summary.get(START_OFFSETS, "[]")))
        start = None if before is None else before.start or before.position
    return _Commits(pipeline, of_stream[0][1], start)


def _others(metadata: TableMetadata, snapshot: Snapshot | None, pipeline: str) -> Iterator[str]:
    """A note where others have written the sink, too."""
    ancestry = metadata.ancestors(None if snapshot is None else snapshot.snapshot_id)
    others = [
        each
        for each in ancestry
        if each.operation != "replace"
        and (MAX_COMMITTED_CHECKPOINT_ID not in each.summary or each.summary.get(PIPELINE) != pipeline)
    ]
    if others:
        names = sorted({each.summary.get(PIPELINE, "a writer without a pipeline") for each in others})
        yield (
            f"{counted(len(others), 'snapshot')} of the table {'is' if len(others) == 1 else 'are'} not of "
            f"pipeline '{pipeline}' but of {', '.join(names)}: what these have written counts as extra, or "
            "as different"
        )


def _end(
    table: Table, source: IcebergSource, commits: _Commits | None, until: str
) -> tuple[Snapshot | None, list[str]]:
    """The last snapshot that is due, and notes about it."""
    bounds = Bounds(table.name, table.location, table.metadata, source.settings)
    newest = bounds.end() or bounds.head()
    if until == LATEST:
        return newest, []
    if commits is None:
        return newest, [
            "no snapshot records how far the table was read: compared with all of it up to "
            f"{'its beginning' if newest is None else f'snapshot {newest.snapshot_id}'}"
        ]
    position = commits.last.position
    if position.within is not None:
        raise InvalidOptionError(
            f"pipeline '{commits.pipeline}' is in the middle of snapshot {position.snapshot_id} of "
            f"{table.name}: a part of a snapshot cannot be compared. Wait until it is read (`streamlake "
            "status` shows it), and verify then"
        )
    if position.snapshot_id is None:
        return None, []
    reached = table.metadata.snapshot(position.snapshot_id)
    if reached is None:
        raise InvalidOptionError(
            f"snapshot {position.snapshot_id} of {table.name}, up to which pipeline '{commits.pipeline}' has "
            "written its table, has expired, so that there is nothing to compare with; let the stream go on, "
            "and verify then, or compare with all that is there now (--until latest)"
        )
    later = 0 if newest is None else _between(table, newest, reached)
    is_one = later == 1
    return reached, (
        [
            f"{counted(later, 'snapshot')} {'is' if is_one else 'are'} newer than what pipeline "
            f"'{commits.pipeline}' has committed, and not compared"
        ]
        if later
        else []
    )


def _between(table: Table, newest: Snapshot, reached: Snapshot) -> int:
    ancestry = [each.snapshot_id for each in table.metadata.ancestors(newest.snapshot_id)]
    return ancestry.index(reached.snapshot_id) if reached.snapshot_id in ancestry else 0


def _start(
    table: Table, source: IcebergSource, commits: _Commits | None, end: Snapshot | None
) -> SnapshotPosition:
    """Where the stream began: as its first commit says, else by its options, where these still say so."""
    if commits is not None and commits.start is not None:
        return commits.start
    strategy = source.settings.strategy
    if strategy in _BY_OPTIONS:
        return Bounds(table.name, table.location, table.metadata, source.settings).start()
    if strategy is Strategy.TABLE_SCAN:
        return SnapshotPosition(None if end is None else end.snapshot_id, is_scan=True)
    raise InvalidOptionError(
        f"where the stream over {table.name} began is no longer recorded: its first commit has expired, and "
        f"starting-strategy={strategy.value} means another place by now. Compare with a source that begins "
        "at a snapshot (start-snapshot-id)"
    )


def _state(
    table: Table, source: IcebergSource, start: SnapshotPosition, end: Snapshot | None
) -> list[FileScanTask]:
    """The rows of the table at `end`: what changes since its beginning, or since a scan, amount to."""
    if start.snapshot_id is not None and not start.is_scan:
        raise InvalidOptionError(
            f"the stream has read changes of {table.name} after snapshot {start.snapshot_id} only: rows that "
            "did not change since are not in its table, so that it cannot be compared as a whole"
        )
    return _scanned(table, source, end)


def _appended(
    table: Table, source: IcebergSource, start: SnapshotPosition, end: Snapshot | None
) -> tuple[list[FileScanTask], list[str]]:
    """The rows that a stream of appends has read from `start` to `end`, and notes about them."""
    began = None if start.snapshot_id is None else table.metadata.snapshot(start.snapshot_id)
    if end is None:
        return [], []
    if start.is_scan and began is None:
        return _scanned(table, source, end), [
            f"snapshot {start.snapshot_id}, with which the stream began, has expired: compared with the rows "
            f"that the table has at snapshot {end.snapshot_id}; what was deleted before counts as extra"
        ]
    schema = table.schema
    added = IncrementalAppendScan(
        table,
        start.snapshot_id,
        end.snapshot_id,
        source.filter_for(schema),
        skip_overwrites=source.settings.skips_deletes,
    )
    scanned = _scanned(table, source, began) if start.is_scan else []
    return [*scanned, *added.plan_files()], []


def _scanned(table: Table, source: IcebergSource, snapshot: Snapshot | None) -> list[FileScanTask]:
    if snapshot is None:
        return []
    own = SourceTable(table, source)
    bound = own.filter(own.planning(table.schema.schema_id))
    return list(ScanPlanner(table.io, table.specs, bound).tasks(table.manifests(snapshot)))
