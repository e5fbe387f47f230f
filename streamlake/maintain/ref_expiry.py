"""Expiry of branches and tags alone: those past their age leave the table, snapshots stay until they
expire.
"""

from __future__ import annotations

from streamlake import clock
from streamlake.maintain.retention import Retention, expired
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import without_snapshots
from streamlake.table.updates.metadata_update import commit_metadata


def expire_refs(table: Table, kind: str | None = None, *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove the branches and tags that are older than their `max-ref-age-ms`, or than the table's.

    `kind` is "branch" or "tag" (None: both). Returns their names; with `dry_run` nothing is changed.
    """
    now_ms = clock.now_ms()

    def names(base: TableMetadata) -> frozenset[str]:
        found = expired(base, Retention.of(base.properties, now_ms)).refs
        return frozenset(name for name in found if kind is None or base.refs[name].type == kind)

    gone = names(table.refresh().metadata)
    if gone and not dry_run:
        commit_metadata(table, lambda base: without_snapshots(base, (), names(base)))
    return tuple(sorted(gone))
