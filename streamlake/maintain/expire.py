"""Expiry: old snapshots leave a table, and the files that only they needed are deleted.

    plan: what expires, what only that needs  ->  commit: the metadata without it  ->  delete

The commit comes first, so that a stop at any place loses nothing: before it nothing has changed, after it the
files are orphans, which the removal of orphans finds. Invariants: the files are worked out against the very
metadata that the commit made, with what others have committed meanwhile; and what staged checkpoints need is
asked for before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from streamlake import clock
from streamlake.errors import InvalidOptionError
from streamlake.failpoints import failpoint
from streamlake.maintain.deletion import Deleted, delete_files, require_deleted
from streamlake.maintain.needed_files import lineage_needs, staged_needs
from streamlake.maintain.retention import Expired, Retention, expired, require_deletable
from streamlake.maintain.snapshot_files import UnneededFiles, unneeded_files
from streamlake.on_progress import OnProgress, unseen
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_update import commit_metadata
from streamlake.wording import counted


@dataclass(frozen=True)
class Expiry:
    """What an expiry has done, or with `dry_run` would do.

    `held` are snapshots that would expire by their age, but streams need them, see `needed_files`. `kept`
    counts the snapshots that are left, `bytes` the files as far as sizes are recorded.
    """

    snapshots: tuple[int, ...]
    refs: tuple[str, ...]
    held: tuple[int, ...]
    kept: int
    files: UnneededFiles
    deleted: Deleted
    dry_run: bool

    @property
    def bytes(self) -> int:
        """The bytes of the files that are deleted."""
        return self.files.bytes


def expire_snapshots(
    table: Table,
    *,
    older_than_ms: int | None = None,
    retain_last: int | None = None,
    snapshot_ids: Iterable[int] = (),
    dry_run: bool = False,
    on_progress: OnProgress = unseen,
) -> Expiry:
    """Expire snapshots older than a time (epoch milliseconds; None: as `history.expire.*` says).

    `retain_last` newest snapshots of every branch stay (None: `history.expire.min-snapshots-to-keep`), where
    the branch has no number of its own; `snapshot_ids` expire whatever their age. Raises InvalidOptionError
    for what must not expire, StorageError where files could not be deleted after the snapshots had expired.
    """
    chosen = tuple(snapshot_ids)
    base = table.refresh().metadata
    require_deletable(base.properties, table.name)
    unknown = [each for each in chosen if base.snapshot(each) is None]
    if unknown:
        raise InvalidOptionError(
            f"table {table.name} has no snapshot {unknown[0]}: it has expired before, or is another table's"
        )
    retention = Retention.of(
        base.properties,
        clock.now_ms(),
        older_than_ms=older_than_ms,
        retain_last=retain_last,
        snapshot_ids=chosen,
    )
    needs = staged_needs(table)
    wanted = expired(base, retention)
    found = expired(base, retention, needs.snapshots | lineage_needs(table, base))
    after = found.removed_from(base)
    files = unneeded_files(table.io, base, after, needs.has, on_progress)
    held = tuple(sorted(wanted.snapshots - found.snapshots))
    if dry_run or not found:
        return _expiry(found, held, after, files, Deleted(), dry_run=dry_run)
    failpoint("expiry-planned")
    swap = _Swap(table, retention, needs.snapshots)
    commit_metadata(table, swap.change)
    failpoint("snapshots-expired")
    if swap.base is None or swap.new is None:
        return _expiry(Expired(frozenset(), frozenset()), held, table.metadata, UnneededFiles(), Deleted())
    if swap.base is not base or swap.new.snapshots_by_id.keys() != after.snapshots_by_id.keys():
        files = unneeded_files(table.io, swap.base, swap.new, needs.has, on_progress)
    files = _still_unneeded(table, swap.base, swap.new, files, on_progress)
    paths = files.in_order
    deleted = delete_files(
        table.io, paths, "files", on_progress, after_group=lambda: failpoint("expired-files-deleted")
    )
    done = f"{table.name}: {counted(len(swap.removed.snapshots), 'snapshot')} expired"
    require_deleted(deleted, done)
    return _expiry(swap.removed, held, swap.new, files, deleted)


class _Swap:
    """The change of the metadata, and what the last attempt of it has made of what."""

    def __init__(self, table: Table, retention: Retention, held: frozenset[int]) -> None:
        self._table = table
        self._retention = retention
        self._held = held
        self.base: TableMetadata | None = None
        self.new: TableMetadata | None = None
        self.removed = Expired(frozenset(), frozenset())

    def change(self, base: TableMetadata) -> TableMetadata:
        found = expired(base, self._retention_of(base), self._held | lineage_needs(self._table, base))
        new = found.removed_from(base)
        if new is not base:
            self.base, self.new, self.removed = base, new, found
        return new

    def _retention_of(self, base: TableMetadata) -> Retention:
        # A chosen snapshot that is gone already has expired in an attempt whose answer was lost.
        return replace(self._retention, chosen=self._retention.chosen & base.snapshots_by_id.keys())


def _still_unneeded(
    table: Table, base: TableMetadata, new: TableMetadata, files: UnneededFiles, on_progress: OnProgress
) -> UnneededFiles:
    """The files without those that the table needs by now: others may have committed or staged meanwhile."""
    needs = staged_needs(table)
    now = table.refresh().metadata
    added = [each for each in now.snapshots if each.snapshot_id not in new.snapshots_by_id]
    if not added and not any(map(needs.has, files.in_order)):
        return files
    return unneeded_files(table.io, base, now, needs.has, on_progress)


def _expiry(
    found: Expired,
    held: tuple[int, ...],
    after: TableMetadata,
    files: UnneededFiles,
    deleted: Deleted,
    *,
    dry_run: bool = False,
) -> Expiry:
    return Expiry(
        tuple(sorted(found.snapshots)),
        tuple(sorted(found.refs)),
        held,
        len(after.snapshots),
        files,
        deleted,
        dry_run,
    )
