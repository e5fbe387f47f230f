"""The conversion of a branch's deletes: plan, write, replace, in one `replace` snapshot.

    equality deletes          -> deletion vectors (version 3), position deletes (version 2)
    position deletes          -> one per data file or partition; in version 3 a deletion vector per data file
    deletes of nothing        -> gone

Iceberg's `rewrite_position_delete_files`, and what it leaves out. Invariants: the rows of the table stay, so
streams of changes see nothing; other writers may commit meanwhile, and lose nothing; where nothing would
become better, nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamlake.errors import CommitConflictError, ConflictValidationError
from streamlake.failpoints import failpoint
from streamlake.maintain.deletes.carried_replacement import CarriedReplacement, NothingLeftError
from streamlake.maintain.deletes.delete_plan import DeletePlan, delete_plan
from streamlake.maintain.deletes.delete_rewrite_options import DeleteRewriteOptions
from streamlake.maintain.deletes.written_deletes import DeleteWriter
from streamlake.on_progress import OnProgress, unseen
from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.expressions import Expression
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.table.producers.replace_deletes import DeleteReplacement, ReplaceDeletes
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head, require_writable
from streamlake.write.target.options import WriteOptions

_ATTEMPTS = 3


@dataclass(frozen=True)
class ConvertedDeletes:
    """What a conversion of deletes has done, or with `dry_run` would do at most.

    `equality_deletes`, `position_deletes` and `deletion_vectors` count delete files that left the table, and
    `dangling` those of them that deleted nothing. `data_files` were looked at; `rows` of them had only been
    deleted by equality deletes. `added`, `rows` and `bytes_after` are None for a dry run. `kept` equality
    deletes stayed, because another writer has committed older rows meanwhile; the next conversion takes them.
    """

    snapshot_id: int | None
    data_files: int
    equality_deletes: int
    position_deletes: int
    deletion_vectors: int
    dangling: int
    kept: int
    added: int | None
    rows: int | None
    bytes_before: int
    bytes_after: int | None
    dry_run: bool

    @property
    def removed(self) -> int:
        """The number of delete files that left the table."""
        return self.equality_deletes + self.position_deletes + self.deletion_vectors


def convert_deletes(
    table: Table,
    options: Mapping[str, object] | None = None,
    *,
    filter: str | Expression | None = None,
    branch: str = MAIN_BRANCH,
    dry_run: bool = False,
    on_progress: OnProgress = unseen,
) -> ConvertedDeletes:
    """Convert and merge the deletes of a branch, of partitions that may match `filter`.

    Raises InvalidOptionError for an unknown option, CommitConflictError or ConflictValidationError where
    other writers were faster each time.
    """
    require_writable(table.refresh().metadata, table.name)
    for attempt in range(_ATTEMPTS):
        try:
            return _convert(table, options or {}, filter, branch, dry_run, on_progress)
        except ConflictValidationError:
            if attempt + 1 == _ATTEMPTS:
                raise
        table.refresh()
    raise AssertionError("unreachable")


def _convert(
    table: Table,
    given: Mapping[str, object],
    filter_: str | Expression | None,
    branch: str,
    dry_run: bool,
    on_progress: OnProgress,
) -> ConvertedDeletes:
    options = DeleteRewriteOptions.of(given, WriteOptions.from_properties(table.properties).delete)
    head = branch_head(table.metadata, branch)
    plan = delete_plan(table, head, options, bind(filter_, table.schema))
    if dry_run or not plan:
        return _planned(plan, dry_run)
    failpoint("deletes-planned")
    writer = DeleteWriter(table, options)
    try:
        new = tuple(writer.write(plan, on_progress))
    except Exception:
        writer.delete_all_but()
        raise
    carried = CarriedReplacement(table, plan, new, writer)
    failpoint("deletes-converted")
    try:
        snapshot = ReplaceDeletes(table, carried, branch).commit()
    except NothingLeftError:
        writer.delete_all_but()
        return _report(plan, None, DeleteReplacement(), len(plan.files), rows=0)
    except (CommitConflictError, ConflictValidationError):
        # Certainly not committed; after any other error the table may have the new deletes.
        writer.delete_all_but()
        raise
    writer.delete_all_but({each.file.file_path for each in carried.result.added})
    rows = sum(each.rows for each in new)
    done = _report(plan, snapshot, carried.result, len(plan.files), rows=rows)
    return replace(done, kept=len(carried.kept))


def _planned(plan: DeletePlan, dry_run: bool) -> ConvertedDeletes:
    merged = [file for each in plan.files if each.is_due for file in each.merged]
    removed = {
        file.identity: file
        for file in (*plan.dangling, *plan.shared, *(entry.data_file for entry in plan.equality), *merged)
    }
    change = DeleteReplacement((), tuple(removed.values()))
    report = _report(plan, None, change, len(plan.files), rows=0)
    if dry_run and plan:
        return replace(report, added=None, rows=None, bytes_after=None, dry_run=True)
    return replace(report, dry_run=dry_run)


def _report(
    plan: DeletePlan, snapshot: Snapshot | None, change: DeleteReplacement, data_files: int, *, rows: int
) -> ConvertedDeletes:
    removed = change.removed
    vectors = sum(file.is_deletion_vector for file in removed)
    keys = sum(file.content == FileContent.EQUALITY_DELETES for file in removed)
    gone = {file.identity for file in plan.dangling}
    return ConvertedDeletes(
        None if snapshot is None else snapshot.snapshot_id,
        data_files,
        keys,
        len(removed) - keys - vectors,
        vectors,
        sum(file.identity in gone for file in removed),
        0,
        len(change.added),
        rows,
        _size(removed),
        _size(each.file for each in change.added),
        dry_run=False,
    )


def _size(files: Iterable[DataFile]) -> int:
    """The bytes of delete files; of a deletion vector, those of its blob."""
    return sum(file.content_size_in_bytes or file.file_size_in_bytes for file in files)
