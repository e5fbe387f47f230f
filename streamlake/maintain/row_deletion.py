"""Deletes the rows that a filter keeps: whole files by their metadata, rows of others by position or by
rewriting.

    plan: which files can hold such rows  ->  read them: which rows  ->  delete files or new files  ->  one
    snapshot

A filter deletes the rows for which it is true; those for which it is null or false stay. Invariants: the
commit goes onto a table in which nothing has changed that the deletion has looked at, else all of it is
computed again from the newest snapshot; files that were written for an attempt that certainly failed are
deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake import clock, ids
from streamlake.ahead import in_order
from streamlake.errors import (
    CommitStateUnknownError,
    ConflictValidationError,
    InvalidOptionError,
    StreamlakeError,
)
from streamlake.failpoints import failpoint
from streamlake.formats.columns.lineage_columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.on_progress import OnProgress, unseen
from streamlake.options import Property
from streamlake.read.column_selection import select_columns
from streamlake.read.deletes import DeleteReader
from streamlake.read.file_rows import FileRows
from streamlake.read.planning import FileScanTask, ScanPlanner
from streamlake.spec.expressions.binding import bind, to_expression
from streamlake.spec.expressions.expressions import TRUE, Expression
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.types.data_types import NestedField
from streamlake.table.options import RetryOptions
from streamlake.table.producers.isolated_producer import ISOLATION_LEVELS
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head, require_writable
from streamlake.table.updates.retries import wait_seconds
from streamlake.write.deletes.live_file import LiveFile
from streamlake.write.deletes.merged_deletes import MergedDeletes, merge_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.task_writer import rows_writer

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
_MODES = (COPY_ON_WRITE, MERGE_ON_READ)
_MODE, _ISOLATION = "write.delete.mode", "write.delete.isolation-level"
PROPERTIES = (
    Property(
        _MODE,
        COPY_ON_WRITE,
        "How `delete` removes some of a file's rows: `copy-on-write` writes the file again, `merge-on-read` "
        "adds position deletes (version 2) or a deletion vector (version 3).",
    ),
    Property(
        _ISOLATION,
        "serializable",
        "`serializable`: `delete` also deletes matching rows that others add meanwhile. `snapshot`: it "
        "leaves them.",
    ),
)
_BATCH_ROWS = 65_536
_READERS = 4
_POSITION = "_pos"
Array = Any  # numpy array


@dataclass(frozen=True)
class RowDeletion:
    """What a deletion has done, or with `dry_run` would do.

    `rows` are the deleted rows, None where equality deletes hide how many rows of the removed files were
    live. `removed_files` are data files without a row left, `changed_files` those that lost some of their
    rows, and `added_files` the data files and delete files that were written for them. `snapshot_id` is
    None where there was nothing to delete, and with `dry_run`. `attempts` counts how often it was computed.
    """

    filter: str
    branch: str
    mode: str
    rows: int | None
    removed_files: int
    changed_files: int
    added_files: int
    snapshot_id: int | None
    attempts: int
    dry_run: bool


@dataclass(frozen=True)
class _Plan:
    """The files that lose rows. `whole` lose all; `positions` are those of the rows that the others lose."""

    head: Snapshot
    whole: tuple[FileScanTask, ...] = ()
    parts: tuple[FileScanTask, ...] = ()
    positions: Mapping[str, Array] = field(default_factory=dict)
    rows: int | None = 0


def delete_rows(
    table: Table,
    row_filter: str | Expression,
    *,
    branch: str = MAIN_BRANCH,
    mode: str | None = None,
    dry_run: bool = False,
    on_progress: OnProgress = unseen,
) -> RowDeletion:
    """Delete the rows of a branch for which the filter is true.

    `mode` is "copy-on-write" or "merge-on-read" (None: as the property `write.delete.mode` says). Raises
    InvalidOptionError, ConflictValidationError when others were faster each time, CommitStateUnknownError.
    """
    if isinstance(row_filter, str) and not row_filter.strip():
        raise InvalidOptionError("delete needs a filter; 'true' deletes all rows")
    if not table.refresh().refs.get(branch) and branch != MAIN_BRANCH:
        raise InvalidOptionError(f"table {table.name} has no branch {branch!r}; create it first")
    retries = RetryOptions.for_commit(table.properties)
    deadline = clock.monotonic() + retries.total_timeout_ms / 1000
    attempts = 0
    while True:
        attempts += 1
        attempt = _Attempt(table, to_expression(row_filter), branch, mode, on_progress)
        try:
            return replace(attempt.run(dry_run=dry_run), attempts=attempts)
        except ConflictValidationError as conflict:
            if attempts > retries.num_retries or clock.monotonic() >= deadline:
                raise ConflictValidationError(
                    f"{conflict} (nothing was deleted; gave up after {attempts} attempts, because other "
                    "writers were faster each time: delete while less is written, choose a filter that fits "
                    "the partitions, or raise commit.retry.num-retries)"
                ) from conflict
            clock.sleep(wait_seconds(retries, attempts))


class _Attempt:
    """One computation of a deletion, from the table's newest version."""

    def __init__(
        self, table: Table, row_filter: Expression, branch: str, mode: str | None, on_progress: OnProgress
    ) -> None:
        self._table = table.refresh()
        self._filter = row_filter
        self._branch = branch
        self._on_progress = on_progress
        self._bound = bind(row_filter, table.schema)
        properties = table.properties
        self._mode = _one_of(_MODE, mode or properties.get(_MODE, COPY_ON_WRITE), _MODES)
        self._isolation = _one_of(
            _ISOLATION, properties.get(_ISOLATION, ISOLATION_LEVELS[0]), ISOLATION_LEVELS
        )
        self._target = WriteTarget.for_table(
            table.metadata, io=table.io, job_id="delete", checkpoint_id=0, operation_uuid=ids.new_uuid()
        )
        self._output = OutputFiles(self._target, 0, 0, 0)
        self._committing = False

    def run(self, *, dry_run: bool) -> RowDeletion:
        require_writable(self._table.metadata, self._table.name)
        head = branch_head(self._table.metadata, self._branch)
        plan = None if head is None else self._plan(head)
        if plan is None or not (plan.whole or plan.parts) or dry_run:
            return self._outcome(plan, len(plan.whole) if plan else 0, 0, None, dry_run=dry_run)
        try:
            by_position = self._mode == MERGE_ON_READ and bool(plan.parts)
            return self._by_position(plan) if by_position else self._by_rewriting(plan)
        except BaseException as error:
            # An interruption of the commit may come after the swap: then the table has the files.
            is_certain = isinstance(error, StreamlakeError) and not isinstance(error, CommitStateUnknownError)
            if is_certain or not self._committing:
                self._output.delete_all()
            raise

    def _plan(self, head: Snapshot) -> _Plan:
        table = self._table
        planner = ScanPlanner(table.io, table.specs, self._bound)
        rows = self._reader((_POSITION,))
        whole: list[FileScanTask] = []
        parts: list[FileScanTask] = []
        positions: dict[str, Array] = {}
        count: int | None = 0

        def look(task: FileScanTask) -> Iterator[tuple[FileScanTask, Array, int | None]]:
            if task.residual == TRUE:
                known = None if task.equality_deletes else rows.count(task)
                yield task, None, known
                return
            found = [batch.column(0).to_numpy(zero_copy_only=False) for batch in rows.read(task)]
            at = np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
            yield task, at, len(at)

        tasks = planner.tasks(table.manifests(head))
        for done, (task, at, known) in enumerate(in_order(tasks, look, workers=_READERS)):
            self._on_progress("data files", done + 1, None)
            if at is None:
                whole.append(task)
                count = None if count is None or known is None else count + known
            elif len(at):
                parts.append(task)
                positions[task.data_file.file_path] = at
                count = None if count is None else count + len(at)
        return _Plan(head, tuple(whole), tuple(parts), positions, count)

    def _reader(self, columns: Iterable[str]) -> FileRows:
        table = self._table
        text = table.properties.get(NAME_MAPPING_PROPERTY)
        mapping = None if text is None else NameMapping.from_json(text)
        others = sorted(table.schemas.values(), key=lambda each: -each.schema_id)
        deletes = DeleteReader(table.io, (table.schema, *others), mapping)
        return FileRows(table.io, select_columns(table.schema, columns), deletes, mapping, _BATCH_ROWS)

    def _by_position(self, plan: _Plan) -> RowDeletion:
        live = {task.data_file.file_path: _live(task) for task in plan.parts}
        written = merge_deletes(self._target, self._output, plan.positions, live)
        failpoint("delete-written")
        paths = {*live} - {file.file_path for file in written.removed}
        change = RowDelta(self._table, self._branch).validate_from_snapshot(plan.head.snapshot_id)
        change.conflict_detection_filter(self._filter).validate_data_files_exist(sorted(paths))
        if self._isolation == ISOLATION_LEVELS[0]:
            change.validate_no_conflicting_data_files()
        for file in written.delete_files:
            change.add_deletes(file)
        for file in _each_once(written):
            change.remove_rows(file) if file.is_data else change.remove_deletes(file)
        for task in plan.whole:
            change.remove_rows(task.data_file)
        removed = len(plan.whole) + sum(file.is_data for file in written.removed)
        self._committing = True
        snapshot = change.commit()
        return self._outcome(plan, removed, len(written.delete_files), snapshot)

    def _by_rewriting(self, plan: _Plan) -> RowDeletion:
        files = self._rewritten(plan) if plan.parts else ()
        failpoint("delete-written")
        change = OverwriteFiles(self._table, self._branch)
        change.validate_from_snapshot(plan.head.snapshot_id)
        change.conflict_detection_filter(self._filter).validate_no_conflicting_deletes()
        if self._isolation == ISOLATION_LEVELS[0]:
            change.validate_no_conflicting_data()
        for task in (*plan.whole, *plan.parts):
            change.delete_file(task.data_file)
        for file in files:
            change.add_file(file)
        self._committing = True
        snapshot = change.commit()
        return self._outcome(plan, len(plan.whole), len(files), snapshot)

    def _rewritten(self, plan: _Plan) -> tuple[DataFile, ...]:
        """New data files with the rows that stay of the files that lose some."""
        target = self._target
        lineage: tuple[NestedField, ...] = ()
        if target.format_version >= 3:
            # A row that only moves keeps its identity (spec: Row Lineage for Moved Rows).
            lineage = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER)
            target = replace(target, schema=replace(target.schema, fields=target.schema.fields + lineage))
        writer = rows_writer(target, self._output)
        reader = self._reader(("*", _POSITION, *(column.name for column in lineage)))
        try:
            for done, task in enumerate(plan.parts):
                self._on_progress("files rewritten", done, len(plan.parts))
                gone = plan.positions[task.data_file.file_path]
                for batch in reader.read(replace(task, residual=TRUE)):
                    at = batch.column(_POSITION).to_numpy(zero_copy_only=False)
                    kept = batch.filter(pa.array(~np.isin(at, gone, assume_unique=True)))
                    if kept.num_rows:
                        writer.write(pa.Table.from_batches([kept]).drop_columns([_POSITION]))
            return writer.close()
        except BaseException:
            writer.abort()
            raise

    def _outcome(
        self,
        plan: _Plan | None,
        removed: int,
        added: int,
        snapshot: Snapshot | None,
        *,
        dry_run: bool = False,
    ) -> RowDeletion:
        touched = 0 if plan is None else len(plan.whole) + len(plan.parts)
        return RowDeletion(
            filter=str(self._filter),
            branch=self._branch,
            mode=self._mode,
            rows=0 if plan is None else plan.rows,
            removed_files=removed,
            changed_files=touched - removed,
            added_files=added,
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            attempts=1,
            dry_run=dry_run,
        )


def _live(task: FileScanTask) -> LiveFile:
    by_position = tuple(file for file in task.delete_files if file.content != FileContent.EQUALITY_DELETES)
    return LiveFile(task.data_file, by_position, task.sequence_number)


def _each_once(written: MergedDeletes) -> Iterable[DataFile]:
    """The removed files; one position delete file may stand beside several data files."""
    return {file.identity: file for file in written.removed}.values()


def _one_of(name: str, value: str, known: Iterable[str]) -> str:
    folded = value.strip().lower()
    if folded not in known:
        raise InvalidOptionError(f"{name}={value!r} is none of {', '.join(known)}")
    return folded
