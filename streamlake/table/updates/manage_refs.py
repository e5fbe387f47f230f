"""Branches and tags: creates, moves and removes them (spec: Snapshot References), and rolls branches back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from streamlake.errors import ConflictValidationError, InvalidOptionError
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_ref, without_ref
from streamlake.table.updates.metadata_update import commit_metadata

_Change = Callable[[TableMetadata], TableMetadata]


class ManageRefs:
    """Collects changes of branches and tags; `commit()` makes them one new version without a snapshot.

    Times and ages are milliseconds. Each change sees the result of those before it. `commit()` raises
    InvalidOptionError for what is not there, ConflictValidationError for what is there already.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._changes: list[_Change] = []

    def create_branch(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        max_ref_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
        max_snapshot_age_ms: int | None = None,
    ) -> ManageRefs:
        """Create a branch at a snapshot (None: main's head), with a retention of its own.

        The commit fails when another ref has the name.
        """
        kept = _checked(name, max_ref_age_ms, min_snapshots_to_keep, max_snapshot_age_ms)
        return self._create(name, replace(kept, type="branch"), snapshot_id)

    def create_tag(
        self, name: str, snapshot_id: int | None = None, *, max_ref_age_ms: int | None = None
    ) -> ManageRefs:
        """Create a tag at a snapshot (None: main's head).

        It is kept for `max_ref_age_ms` milliseconds (None: by the table's rule).
        """
        return self._create(name, replace(_checked(name, max_ref_age_ms), type="tag"), snapshot_id)

    def set_branch(self, name: str, snapshot_id: int) -> ManageRefs:
        """Point an existing branch at any snapshot of the table; main too: its current snapshot."""
        return self._move(name, "branch", lambda base, ref: snapshot_id)

    def set_tag(self, name: str, snapshot_id: int) -> ManageRefs:
        """Point an existing tag at any snapshot of the table."""
        return self._move(name, "tag", lambda base, ref: snapshot_id)

    def fast_forward(self, name: str, to: str) -> ManageRefs:
        """Move a branch to the snapshot of another branch or tag, which has its own among its ancestors."""

        def target(base: TableMetadata, ref: SnapshotRef) -> int:
            other = base.refs.get(to)
            if other is None:
                raise self._missing("branch or tag", to, base)
            if all(each.snapshot_id != ref.snapshot_id for each in base.ancestors(other.snapshot_id)):
                raise ConflictValidationError(
                    f"table {self._table.name}: branch {name!r} cannot be fast-forwarded to {to!r}: its "
                    f"snapshot {ref.snapshot_id} is not among those that {to!r} is built on; set_branch "
                    "moves it anyway"
                )
            return other.snapshot_id

        return self._move(name, "branch", target)

    def rollback_to(self, snapshot_id: int, branch: str = MAIN_BRANCH) -> ManageRefs:
        """Put a branch back to one of the snapshots that it is built on."""

        def target(base: TableMetadata, ref: SnapshotRef) -> int:
            if base.snapshot(snapshot_id) is None:
                raise InvalidOptionError(
                    f"table {self._table.name} has no snapshot {snapshot_id}; it may have expired: "
                    f"`streamlake inspect {self._table.name} snapshots` lists what there is"
                )
            if all(each.snapshot_id != snapshot_id for each in base.ancestors(ref.snapshot_id)):
                raise InvalidOptionError(
                    f"table {self._table.name}: branch {branch!r} cannot be rolled back to snapshot "
                    f"{snapshot_id}, which it is not built on; set_branch moves it there anyway"
                )
            return snapshot_id

        return self._move(branch, "branch", target)

    def rollback_to_time(self, timestamp_ms: int, branch: str = MAIN_BRANCH) -> ManageRefs:
        """Put a branch back to the newest snapshot that it is built on and that is older than a time.

        The time is in epoch milliseconds.
        """

        def target(base: TableMetadata, ref: SnapshotRef) -> int:
            for snapshot in base.ancestors(ref.snapshot_id):
                if snapshot.timestamp_ms < timestamp_ms:
                    return snapshot.snapshot_id
            moment = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc).isoformat()
            raise InvalidOptionError(
                f"table {self._table.name}: branch {branch!r} has no snapshot from before {moment}; "
                f"`streamlake inspect {self._table.name} snapshots` lists what there is"
            )

        return self._move(branch, "branch", target)

    def set_retention(
        self,
        name: str,
        *,
        max_ref_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
        max_snapshot_age_ms: int | None = None,
    ) -> ManageRefs:
        """Set how long a branch or tag, and a branch's snapshots, are kept; None: by the table's rule."""
        kept = _checked(name, max_ref_age_ms, min_snapshots_to_keep, max_snapshot_age_ms, any_name=True)

        def change(base: TableMetadata) -> TableMetadata:
            ref = base.refs.get(name)
            if ref is None:
                raise self._missing("branch or tag", name, base)
            if ref.type == "tag" and (min_snapshots_to_keep or max_snapshot_age_ms) is not None:
                raise InvalidOptionError(
                    f"{name!r} is a tag, which keeps one snapshot: give max_ref_age_ms only"
                )
            return with_ref(base, name, replace(kept, snapshot_id=ref.snapshot_id, type=ref.type))

        self._changes.append(change)
        return self

    def remove(self, name: str) -> ManageRefs:
        """Remove a branch or tag (never main). It need not exist."""
        self._changes.append(lambda base: without_ref(base, name))
        return self

    def apply(self) -> TableMetadata:
        """The metadata that a commit would make of the metadata as last read."""
        return self._apply(self._table.metadata)

    def commit(self) -> TableMetadata:
        """Commit the changes; returns the new metadata."""
        return commit_metadata(self._table, self._apply)

    def _create(self, name: str, ref: SnapshotRef, snapshot_id: int | None) -> ManageRefs:
        def change(base: TableMetadata) -> TableMetadata:
            target = base.current_snapshot_id if snapshot_id is None else snapshot_id
            if target is None:
                raise InvalidOptionError(
                    f"{ref.type} {name!r} needs a snapshot, and table {self._table.name} is empty"
                )
            new = replace(ref, snapshot_id=target)
            if name in base.refs and base.refs[name] != new:
                raise ConflictValidationError(
                    f"table {self._table.name} already has a {base.refs[name].type} {name!r} (snapshot"
                    f" {base.refs[name].snapshot_id}); remove it first, or choose another name"
                )
            return with_ref(base, name, new)

        self._changes.append(change)
        return self

    def _move(self, name: str, kind: str, target: Callable[[TableMetadata, SnapshotRef], int]) -> ManageRefs:
        def change(base: TableMetadata) -> TableMetadata:
            ref = base.refs.get(name)
            if ref is None or ref.type != kind:
                raise self._missing(kind, name, base)
            return with_ref(base, name, replace(ref, snapshot_id=target(base, ref)))

        self._changes.append(change)
        return self

    def _missing(self, kind: str, name: str, base: TableMetadata) -> InvalidOptionError:
        found = base.refs.get(name)
        if found is not None:
            return InvalidOptionError(f"table {self._table.name}: {name!r} is a {found.type} and no {kind}")
        if name == MAIN_BRANCH:
            return InvalidOptionError(
                f"table {self._table.name} is empty, so its main branch has no snapshot"
            )
        known = ", ".join(sorted(base.refs)) or "none"
        return InvalidOptionError(
            f"table {self._table.name} has no {kind} {name!r}; create it first (there are {known})"
        )

    def _apply(self, base: TableMetadata) -> TableMetadata:
        for change in self._changes:
            base = change(base)
        return base


def _checked(
    name: str,
    max_ref_age_ms: int | None,
    min_snapshots_to_keep: int | None = None,
    max_snapshot_age_ms: int | None = None,
    *,
    any_name: bool = False,
) -> SnapshotRef:
    """A ref with this retention and no snapshot yet. Raises InvalidOptionError."""
    if not name.strip():
        raise InvalidOptionError("a branch or tag needs a name")
    if name == MAIN_BRANCH and not any_name:
        raise InvalidOptionError("the main branch always exists: give the new ref another name")
    if name == MAIN_BRANCH and max_ref_age_ms is not None:
        raise InvalidOptionError("the main branch never expires: leave max_ref_age_ms out")
    given = {
        "max_ref_age_ms": max_ref_age_ms,
        "min_snapshots_to_keep": min_snapshots_to_keep,
        "max_snapshot_age_ms": max_snapshot_age_ms,
    }
    for key, value in given.items():
        if value is not None and value < 1:
            raise InvalidOptionError(f"{key}={value}: it is at least 1")
    return SnapshotRef(
        0,
        "branch",
        min_snapshots_to_keep=min_snapshots_to_keep,
        max_snapshot_age_ms=max_snapshot_age_ms,
        max_ref_age_ms=max_ref_age_ms,
    )
