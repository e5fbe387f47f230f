"""The hold of a stream: a branch of the table that it reads, which keeps what is not read yet from expiring.

    branch that is read    ... - X - Y - Z          X: what the sink has committed
    hold                               ^            at Z, and keeps three snapshots: X, Y, Z

A tag would keep one snapshot and let those after it expire, so the hold is a branch with a retention of its
own (spec: Snapshot Retention Policy): it ends at the newest snapshot and keeps as many as lead back to the
read position. Whoever expires snapshots by the specification keeps them, with all of their files.

Place in the flow: on the driver, on the query's thread, beside the planning of offsets. Invariant: the hold
begins at or before what the sink has committed, so that whatever a restart reads again is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from streamlake import clock
from streamlake.errors import CommitError, InvalidOptionError, StorageError, StreamlakeError
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import SnapshotPosition
from streamlake.spec.metadata.snapshot import SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_ref, without_ref
from streamlake.table.updates.metadata_update import commit_metadata

HOLD_PREFIX = "streamlake-hold-"
_LOG = logging.getLogger(__name__)
_FOREVER_MS = (1 << 63) - 1
_SHORTEST_MS = 1
"""The age up to which the branch keeps snapshots beside their number: none."""


def hold_name(job_id: str) -> str:
    """The name of the branch that holds snapshots for the stream of a checkpoint directory."""
    return f"{HOLD_PREFIX}{job_id}"


class SnapshotHold:
    """The hold of one stream on `table`, which is a table of its own: it is refreshed for each change.

    Used by one thread, but for `reached`.
    """

    def __init__(self, table: Table, source: IcebergSource, job_id: str) -> None:
        self._table = table
        self._branch = source.settings.branch
        self._interval = source.settings.monitor_interval_seconds
        self._name = hold_name(job_id)
        self._reached: SnapshotPosition | None = None
        self._moved_at: float | None = None
        self._is_set = False

    def begin(self, position: SnapshotPosition) -> None:
        """Set the hold where nothing that is not committed comes before it.

        Where the hold is there already, it stays: an earlier run has moved it by what was committed. Raises
        InvalidOptionError where the table cannot be written, or a tag has the name.
        """
        try:
            self._commit(lambda base: _begun(base, self._branch, self._name, position))
        except (StorageError, CommitError, OSError) as error:
            raise InvalidOptionError(
                f"table {self._table.name}: hold-snapshots=true keeps a branch '{self._name}' in the table "
                f"that is read, and it cannot be written: {error}. Give this user the right to write the "
                "table's metadata, or leave the option out"
            ) from error
        self._moved_at = clock.monotonic()
        self._reached = _oldest_held(self._table.metadata, self._name)
        self._is_set = self._reached is not None

    def reached(self, position: SnapshotPosition) -> None:
        """Note that the sink has committed up to a position. For any thread."""
        self._reached = position

    def keep(self, *, at_once: bool = False) -> None:
        """Move the hold to what is committed and to the newest snapshot, if a monitor interval has passed.

        A failure is logged, and tried again an interval later: the hold then begins earlier than it could.
        """
        position = self._reached
        is_due = self._moved_at is None or clock.monotonic() - self._moved_at >= self._interval
        if position is None or not (is_due or at_once):
            return
        self._moved_at = clock.monotonic()
        try:
            was_there = self._commit(lambda base: _moved(base, self._branch, self._name, position))
        except StreamlakeError as error:
            self._warn("could not be moved; it is tried again", error)
            return
        if self._is_set and not was_there:
            self._warn("was removed by somebody else, and is set anew: what it held may have expired")
        self._is_set = True

    def remove(self) -> None:
        """Remove the hold: the stream has come to its end. A failure is logged."""
        try:
            self._commit(lambda base: without_ref(base, self._name))
        except StreamlakeError as error:
            self._warn("could not be removed; remove it by hand", error)

    def _commit(self, change: Callable[[TableMetadata], TableMetadata]) -> bool:
        """Make a change, unless it changes nothing; returns whether the hold was there before."""
        before = self._table.refresh().metadata
        if change(before) is not before:
            commit_metadata(self._table, change)
        return self._name in before.refs

    def _warn(self, what: str, error: StreamlakeError | None = None) -> None:
        _LOG.warning(
            "table %s: the branch %s, which holds snapshots for this stream, %s%s",
            self._table.name,
            self._name,
            what,
            "" if error is None else f": {error}",
        )


def _begun(base: TableMetadata, branch: str, name: str, position: SnapshotPosition) -> TableMetadata:
    known = base.refs.get(name)
    if known is not None and known.type != "branch":
        raise InvalidOptionError(
            f"{base.location} has a tag '{name}', and hold-snapshots=true keeps a branch of that name; "
            "remove the tag"
        )
    return base if known is not None else _moved(base, branch, name, position)


def _moved(base: TableMetadata, branch: str, name: str, position: SnapshotPosition) -> TableMetadata:
    """The metadata with the hold from a position to the newest snapshot of the branch.

    The hold stays where it is while the branch does not lead back to the position: what it holds is what the
    stream needs to go on once that was put right.
    """
    head = base.head(branch)
    if head is None:
        return base
    kept = 0
    oldest = head
    for oldest in base.ancestors(head.snapshot_id):
        kept += 1
        if oldest.snapshot_id == position.snapshot_id:
            break
    is_connected = position.snapshot_id in (oldest.snapshot_id, oldest.parent_snapshot_id)
    if not is_connected and name in base.refs:
        return base
    ref = SnapshotRef(
        head.snapshot_id,
        "branch",
        min_snapshots_to_keep=kept,
        max_snapshot_age_ms=_SHORTEST_MS,
        max_ref_age_ms=_FOREVER_MS,
    )
    return with_ref(base, name, ref)


def _oldest_held(metadata: TableMetadata, name: str) -> SnapshotPosition | None:
    """The oldest snapshot that a hold keeps; None without a hold."""
    ref = metadata.refs.get(name)
    if ref is None:
        return None
    kept = islice(metadata.ancestors(ref.snapshot_id), ref.min_snapshots_to_keep)
    *_, oldest = kept
    return SnapshotPosition(oldest.snapshot_id)
