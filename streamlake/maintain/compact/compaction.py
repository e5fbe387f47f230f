"""Compaction: data files of the wrong size, or with many deleted rows, are written again; in one snapshot, or
with partial progress in several.

    plan: file groups  ->  rewrite: each group's live rows  ->  commit: a `replace` snapshot

It runs beside streams. What they delete meanwhile is carried over to the new files when it commits, see
`carried_deletes`; a group most of which is gone by then is given up, the others are committed. Invariants:
readers and change streams see the same rows before and after; whatever fails, the table is whole, and new
files that certainly are not in it are deleted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace

from streamlake import ids
from streamlake.errors import (
    CommitStateUnknownError,
    ConflictValidationError,
    InvalidOptionError,
    StorageError,
    StreamlakeError,
)
from streamlake.failpoints import failpoint
from streamlake.maintain.compact.carried_deletes import CarriedDeletes
from streamlake.maintain.compact.chosen_groups import tiered, within
from streamlake.maintain.compact.compact_options import SORT, STRATEGIES, CompactOptions, CompactSettings
from streamlake.maintain.compact.file_groups import FileGroup, partition_filter, planned_groups
from streamlake.maintain.compact.group_rewrite import GroupRewrite, RewrittenGroup
from streamlake.maintain.compact.index_map import IndexMap
from streamlake.maintain.compact.old_maps import remove_old_maps
from streamlake.on_progress import OnProgress, unseen
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.partitioning.sort_order import SortOrder, parse_sort_by
from streamlake.table.producers.rewrite_files import Replacement, RewriteFiles
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head, require_writable
from streamlake.wording import counted

BeforeCommit = Callable[[RewriteFiles, Sequence[RewrittenGroup]], None]
"""Called before each commit with the producer and the groups that it is to commit."""


@dataclass(frozen=True)
class FileTotals:
    """Data files, their bytes and rows."""

    files: int = 0
    bytes: int = 0
    rows: int = 0

    @staticmethod
    def of(files: Iterable[DataFile]) -> FileTotals:
        """The totals of data files."""
        given = list(files)
        return FileTotals(
            len(given),
            sum(file.file_size_in_bytes for file in given),
            sum(file.record_count for file in given),
        )

    def __add__(self, other: FileTotals) -> FileTotals:
        return FileTotals(self.files + other.files, self.bytes + other.bytes, self.rows + other.rows)


@dataclass(frozen=True)
class GroupPlan:
    """One group as planned: its partition as a path ("": the whole table, or several), what is in it, and how
    many files it should become.
    """

    partition: str
    data_files: FileTotals
    delete_files: int
    output_files: int


@dataclass(frozen=True)
class Compaction:
    """What a compaction has done, or with `dry_run` would do.

    `rewritten` and `delete_files` are what was read: of all planned groups in a dry run, else of those
    committed. `added` are the new data files. `carried_rows` were deleted or rewritten by others meanwhile,
    `given_up` counts groups most of whose rows were. `failed` has the errors of groups that failed while
    others were committed.
    """

    strategy: str
    groups: tuple[GroupPlan, ...]
    snapshots: tuple[int, ...] = ()
    rewritten: FileTotals = field(default_factory=FileTotals)
    delete_files: int = 0
    added: FileTotals = field(default_factory=FileTotals)
    removed_delete_files: int = 0
    carried_rows: int = 0
    given_up: int = 0
    failed: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def deleted_rows(self) -> int:
        """The rows that the old files had and the new ones need not have, because they were deleted."""
        return 0 if self.dry_run else self.rewritten.rows - self.added.rows


def rewrite_data_files(
    table: Table,
    settings: CompactSettings,
    on_progress: OnProgress = unseen,
    before_commit: BeforeCommit | None = None,
) -> Compaction:
    """Compact a branch of a table.

    Raises InvalidOptionError for what cannot be asked of this table, ConflictValidationError where the branch
    was rolled back or the table upgraded meanwhile, CommitConflictError, StorageError, DataInvalidError (all:
    nothing is changed, or with partial progress the commits before stay), CommitStateUnknownError.
    """
    base = table.refresh().metadata
    require_writable(base, table.name)
    options = CompactOptions.parse(settings.options, base)
    order = _sort_order(table, settings)
    bound = partition_filter(table, settings.filter)
    start = table.snapshot_by(ref=settings.branch)
    branch_head(base, settings.branch)
    groups = [] if start is None else planned_groups(table, start, bound, options)
    if settings.in_tiers:
        groups = list(tiered(groups, options))
    if settings.max_bytes is not None:
        groups = within(groups, settings.max_bytes)
    plan = Compaction(
        settings.strategy,
        tuple(_plan(table, group) for group in groups),
        rewritten=FileTotals.of(file for group in groups for file in group.files),
        delete_files=_delete_files(groups),
        dry_run=settings.dry_run,
    )
    if settings.dry_run or not groups or start is None:
        return plan
    rewrite = GroupRewrite.of(table, options, order, ids.new_uuid())
    commit = _Commits(table, start, settings.branch, options, before_commit)
    progress = _Progress(on_progress, groups)
    if options.partial_progress:
        failed = _in_parts(rewrite, groups, commit, progress)
    else:
        commit.all(_rewritten(rewrite, groups, progress))
        failed = ()
    remove_old_maps(table)
    return replace(
        plan,
        snapshots=tuple(snapshot.snapshot_id for snapshot in commit.snapshots),
        rewritten=FileTotals.of(file for each in commit.committed for file in each.group.files),
        delete_files=_delete_files(each.group for each in commit.committed),
        added=FileTotals.of(file for each in commit.committed for file in each.data_files),
        removed_delete_files=sum(
            int(snapshot.summary.get("removed-delete-files", 0)) for snapshot in commit.snapshots
        ),
        carried_rows=commit.carried_rows,
        given_up=commit.given_up,
        failed=failed,
    )


def _sort_order(table: Table, settings: CompactSettings) -> SortOrder | None:
    """The order to sort by; None: none."""
    if settings.strategy not in STRATEGIES:
        raise InvalidOptionError(
            f"there is no strategy '{settings.strategy}' of compaction; there are {', '.join(STRATEGIES)}"
        )
    if settings.strategy != SORT:
        if settings.sort_by:
            raise InvalidOptionError(f"sort_by is for the strategy '{SORT}', not for '{settings.strategy}'")
        return None
    if not settings.sort_by:
        if table.sort_order.is_unsorted:
            raise InvalidOptionError(
                f"{table.name} has no sort order: say what to sort by, such as 'ts desc', or take the "
                "strategy 'binpack'"
            )
        return table.sort_order
    given = parse_sort_by(settings.sort_by, table.schema, 0)
    known = [each.order_id for each in table.metadata.sort_orders if each.fields == given.fields]
    # Files of an order that the table does not have are unsorted for readers.
    return SortOrder(known[0] if known else 0, given.fields)


def _plan(table: Table, group: FileGroup) -> GroupPlan:
    file = group.files[0]
    spec = table.metadata.spec_by_id(file.spec_id)
    path = "" if group.moves else spec.partition_path(file.partition, table.schema)
    return GroupPlan(path, FileTotals.of(group.files), len(group.delete_files), group.output_files)


def _delete_files(groups: Iterable[FileGroup]) -> int:
    return len({identity for group in groups for identity in group.delete_files})


class _Progress:
    """Reports the old files that are done, from any thread."""

    def __init__(self, on_progress: OnProgress, groups: Sequence[FileGroup]) -> None:
        self._on_progress = on_progress
        self._total = sum(len(group.tasks) for group in groups)
        self._done = 0
        self._lock = threading.Lock()
        on_progress("rewrite data files", 0, self._total)

    def file_done(self) -> None:
        with self._lock:
            self._done += 1
            self._on_progress("rewrite data files", self._done, self._total)


def _results(
    rewrite: GroupRewrite, groups: Sequence[FileGroup], progress: _Progress, stop: threading.Event
) -> Iterator[Future[RewrittenGroup]]:
    """The groups as they are done; closing it stops the others, whose files are deleted."""
    workers = min(rewrite.options.concurrent_groups, len(groups))
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="streamlake-compact") as pool:
        futures = [pool.submit(rewrite.rewrite, group, progress.file_done, stop.is_set) for group in groups]
        taken: set[Future[RewrittenGroup]] = set()
        try:
            for future in as_completed(futures):
                taken.add(future)
                yield future
        finally:
            stop.set()
            for future in futures:
                future.cancel()
            pool.shutdown(wait=True)
            for future in futures:
                if future not in taken and not future.cancelled() and future.exception() is None:
                    _delete_outputs(rewrite, [future.result()])


def _rewritten(
    rewrite: GroupRewrite, groups: Sequence[FileGroup], progress: _Progress
) -> list[RewrittenGroup]:
    """All groups. The first error ends all of them, and their files are deleted."""
    done: list[RewrittenGroup] = []
    results = _results(rewrite, groups, progress, threading.Event())
    try:
        for future in results:
            done.append(future.result())
        failpoint("file-groups-rewritten")
    except BaseException:
        results.close()  # type: ignore[attr-defined]
        _delete_outputs(rewrite, done)
        raise
    return sorted(done, key=lambda each: each.group.number)


def _in_parts(
    rewrite: GroupRewrite, groups: Sequence[FileGroup], commit: _Commits, progress: _Progress
) -> tuple[str, ...]:
    """Commit groups as they are done. Gives the errors of those that failed."""
    options = rewrite.options
    per_commit = math.ceil(len(groups) / options.max_commits)
    ready: list[RewrittenGroup] = []
    errors: list[str] = []
    failed_commits = 0
    results = _results(rewrite, groups, progress, threading.Event())
    try:
        for future in results:
            try:
                ready.append(future.result())
            except StreamlakeError as error:
                errors.append(str(error))
            if len(ready) >= per_commit:
                some, ready = ready, []
                failed_commits += commit.tried(some, errors)
        some, ready = ready, []
        failed_commits += commit.tried(some, errors)
    except BaseException:
        results.close()  # type: ignore[attr-defined]
        _delete_outputs(rewrite, ready)
        raise
    if failed_commits > options.max_failed_commits or (errors and not commit.snapshots):
        raise ConflictValidationError(
            f"{rewrite.target.location}: {counted(len(commit.snapshots), 'commit')} of the compaction done, "
            f"{len(errors)} parts of it failed: {errors[0]}"
        )
    return tuple(errors)


def _delete_outputs(rewrite: GroupRewrite, groups: Iterable[RewrittenGroup]) -> None:
    for each in groups:
        for file in each.data_files:
            with suppress(StorageError):
                rewrite.io.delete(file.file_path)


class _Commits:
    """Commits rewritten groups, and counts what came of them."""

    def __init__(
        self,
        table: Table,
        start: Snapshot,
        branch: str,
        options: CompactOptions,
        before_commit: BeforeCommit | None,
    ) -> None:
        self._table = table
        self._start = start
        self._branch = branch
        self._options = options
        self._before_commit = before_commit
        self.snapshots: list[Snapshot] = []
        self.committed: list[RewrittenGroup] = []
        self.carried_rows = 0
        self.given_up = 0

    def tried(self, groups: Sequence[RewrittenGroup], errors: list[str]) -> bool:
        """Commit groups; an error that leaves the table alone goes to `errors`. True if there was one."""
        try:
            self.all(groups)
        except CommitStateUnknownError:
            raise
        except StreamlakeError as error:
            errors.append(str(error))
            return True
        return False

    def all(self, groups: Sequence[RewrittenGroup]) -> None:
        """Commit groups in one snapshot, without those whose files others have changed.

        Raises ConflictValidationError for a conflict of no group alone, such as a rollback.
        """
        left = list(groups)
        while left:
            carry = CarriedDeletes(self._table, left)
            index_map = IndexMap(self._table, left)
            producer: RewriteFiles | None = None
            try:
                producer = self._producer(left, carry)
                producer.set_summary(index_map.summary)
                snapshot = producer.commit()
            except ConflictValidationError:
                carry.clean_up(committed=False)
                index_map.clean_up()
                conflicting = frozenset() if producer is None else producer.conflicting
                self._delete([each for at, each in enumerate(left) if at in conflicting])
                still = [each for at, each in enumerate(left) if at not in conflicting]
                if not conflicting:
                    self._delete(still)
                    raise
                self.given_up += len(left) - len(still)
                left = still
                continue
            except CommitStateUnknownError:
                raise
            except BaseException:
                if producer is None or not producer.may_be_committed:
                    carry.clean_up(committed=False)
                    index_map.clean_up()
                    self._delete(left)
                raise
            failpoint("compaction-committed")
            carry.clean_up(committed=True)
            self.snapshots.append(snapshot)
            self.committed += left
            self.carried_rows += carry.rows
            return

    def _producer(self, groups: Sequence[RewrittenGroup], carry: CarriedDeletes) -> RewriteFiles:
        replacements = [Replacement(each.group.files, each.data_files, each.group.moves) for each in groups]
        producer = RewriteFiles(
            self._table,
            self._start,
            replacements,
            carry,
            branch=self._branch,
            keeps_sequence_number=self._options.keeps_sequence_number,
        )
        if self._before_commit is not None:
            self._before_commit(producer, groups)
        return producer

    def _delete(self, groups: Iterable[RewrittenGroup]) -> None:
        for each in groups:
            for file in each.data_files:
                with suppress(StorageError):
                    self._table.io.delete(file.file_path)
