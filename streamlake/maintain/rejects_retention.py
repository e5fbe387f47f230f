"""The age limit of rejects: whole days of a rejects table that are older leave it, without a file being read.

A rejects table is partitioned by the day on which its records were rejected. A day leaves when its last
moment is old enough, whether or not its records were replayed: the age is what somebody has set. Invariant:
without an age nothing is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlake import clock
from streamlake.decode.rejected_records import REJECTS
from streamlake.errors import InvalidOptionError
from streamlake.maintain.ages import before_ms
from streamlake.options import Property
from streamlake.read.planning import ScanPlanner
from streamlake.spec.expressions.binding import bind
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.types.values import format_date
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head

RETENTION = "streamlake.rejects-retention"
PROPERTIES = (
    Property(
        RETENTION,
        "",
        "How old rejected records become, such as `30d`, before maintenance drops them; else they stay. A "
        "table's rejects table takes it over when it is created.",
    ),
)
_DAY_MS = 86_400_000
_BY_DAY = "day(rejected_at)"


@dataclass(frozen=True)
class DroppedRejects:
    """What was dropped of a rejects table, or with `dry_run` would be: all records of days before `before`.

    `snapshot_id` is None where nothing was.
    """

    snapshot_id: int | None
    before: str
    rows: int
    files: int
    bytes: int
    dry_run: bool


def is_rejects(table: Table) -> bool:
    """Whether a table is one of rejects."""
    return all(part.name in table.schema.column_names for part in REJECTS.fields)


def rejects_before_ms(table: Table) -> int | None:
    """The time before which rejects are too old, as the table's property says; None: it says nothing.

    Raises InvalidOptionError for what is no age.
    """
    age = table.properties.get(RETENTION)
    return None if age is None else before_ms(age, f"table property {RETENTION}")


def drop_old_rejects(
    table: Table, *, older_than_ms: int | None = None, dry_run: bool = False
) -> DroppedRejects:
    """Drop the days of a rejects table that ended before a time (epoch milliseconds; None: the table's).

    Raises InvalidOptionError where nothing says how old rejects become, for a table of something else, and
    for one that is not partitioned by day.
    """
    table.refresh()
    if not is_rejects(table):
        raise InvalidOptionError(f"{table.name} is no rejects table; those end with __rejects")
    limit = rejects_before_ms(table) if older_than_ms is None else older_than_ms
    if limit is None:
        raise InvalidOptionError(
            f"nothing says how old the rejects in {table.name} become: set its property {RETENTION}, such as "
            "30d, or say an age"
        )
    _require_days(table)
    before = format_date(min(limit, clock.now_ms()) // _DAY_MS)
    row_filter = f"rejected_at < '{before}T00:00:00Z'"
    planner = ScanPlanner(table.io, table.specs, bind(row_filter, table.schema))
    head = branch_head(table.metadata, MAIN_BRANCH)
    files = [task.data_file for task in planner.tasks(table.manifests(head))]
    dropped = DroppedRejects(
        None,
        before,
        sum(file.record_count for file in files),
        len(files),
        sum(file.file_size_in_bytes for file in files),
        dry_run,
    )
    if dry_run or not files:
        return dropped
    snapshot = OverwriteFiles(table).overwrite_by_filter(row_filter).commit()
    return DroppedRejects(snapshot.snapshot_id, before, dropped.rows, dropped.files, dropped.bytes, dry_run)


def _require_days(table: Table) -> None:
    source = table.schema.find("rejected_at")
    by_day = [
        part
        for part in table.spec.fields
        if source is not None and part.source_id == source.field_id and str(part.transform) == "day"
    ]
    if not by_day:
        raise InvalidOptionError(
            f"{table.name} is not partitioned by {_BY_DAY}, so no whole days of it can be dropped; delete "
            "old rows with another engine"
        )
