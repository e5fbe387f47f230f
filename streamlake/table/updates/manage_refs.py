"""Branches and tags: creates, moves and removes them (spec: Snapshot References).

A tag may have a retention of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from streamlake.errors import ConflictValidationError, InvalidOptionError
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_ref, without_ref
from streamlake.table.updates.metadata_update import commit_metadata

_Change = Callable[[TableMetadata], TableMetadata]


class ManageRefs:
    """Collects changes of branches and tags; `commit()` makes them one new version without a snapshot."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._changes: list[_Change] = []

    def create_branch(self, name: str, snapshot_id: int | None = None) -> ManageRefs:
        """Create a branch at a snapshot (None: main's head).

        The commit fails when another ref has the name.
        """
        return self._create(name, "branch", snapshot_id, None)

    def create_tag(
        self, name: str, snapshot_id: int | None = None, *, max_ref_age_ms: int | None = None
    ) -> ManageRefs:
        """Create a tag at a snapshot (None: main's head).

        It is kept for `max_ref_age_ms` milliseconds (None: by the table's rule).
        """
        return self._create(name, "tag", snapshot_id, max_ref_age_ms)

    def set_branch(self, name: str, snapshot_id: int) -> ManageRefs:
        """Point an existing branch at a snapshot of the table (a rollback, or a fast-forward)."""

        def change(base: TableMetadata) -> TableMetadata:
            ref = base.refs.get(name)
            if ref is None or ref.type != "branch":
                raise InvalidOptionError(f"table {self._table.name} has no branch {name!r}; create it first")
            return with_ref(base, name, replace(ref, snapshot_id=snapshot_id))

        self._changes.append(change)
        return self

    def remove(self, name: str) -> ManageRefs:
        """Remove a branch or tag (never main). It need not exist."""
        self._changes.append(lambda base: without_ref(base, name))
        return self

    def commit(self) -> TableMetadata:
        """Commit the changes; returns the new metadata."""
        return commit_metadata(self._table, self._apply)

    def _create(
        self, name: str, kind: str, snapshot_id: int | None, max_ref_age_ms: int | None
    ) -> ManageRefs:
        if name == MAIN_BRANCH:
            raise InvalidOptionError("the main branch always exists: give the new ref another name")

        def change(base: TableMetadata) -> TableMetadata:
            target = base.current_snapshot_id if snapshot_id is None else snapshot_id
            if target is None:
                raise InvalidOptionError(
                    f"{kind} {name!r} needs a snapshot, and table {self._table.name} is empty"
                )
            ref = SnapshotRef(target, kind, max_ref_age_ms=max_ref_age_ms)
            if name in base.refs and base.refs[name] != ref:
                raise ConflictValidationError(
                    f"table {self._table.name} already has a {base.refs[name].type} {name!r} (snapshot"
                    f" {base.refs[name].snapshot_id}); remove it first, or choose another name"
                )
            return with_ref(base, name, ref)

        self._changes.append(change)
        return self

    def _apply(self, base: TableMetadata) -> TableMetadata:
        for change in self._changes:
            base = change(base)
        return base
