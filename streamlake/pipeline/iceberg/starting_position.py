"""Where a stream begins and where it ends, by its options and the table's history as it is now.

As Iceberg's Flink source does it (ContinuousSplitPlannerImpl.startSnapshot), with three differences: the
branch that is read counts, and not main; a snapshot has to be on that branch; and of several snapshots of one
millisecond, a timestamp means the oldest.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion
from streamlake.source.iceberg.iceberg_options import IcebergOptions, Strategy
from streamlake.source.iceberg.table_offset import FilePosition, SnapshotPosition
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata

NOTHING = SnapshotPosition(None)
"""Before the table's first snapshot."""


@dataclass(frozen=True)
class Bounds:
    """Finds the first and the last snapshot of a stream. `table` is its name, for messages. `newest`: the id
    of the snapshot that counts as the branch's newest one (None: the one that is).
    """

    table: str
    location: str
    metadata: TableMetadata
    settings: IcebergOptions
    newest: int | None = None

    def head(self) -> Snapshot | None:
        """The newest snapshot of the branch; None for a table without any.

        Raises InvalidOptionError when there is no such branch.
        """
        name = self.settings.branch
        chosen = None if self.newest is None else self.metadata.snapshot(self.newest)
        if chosen is not None:
            return chosen
        if name == MAIN_BRANCH:
            return self.metadata.current_snapshot
        ref = self.metadata.refs.get(name)
        if ref is None or ref.type != "branch":
            raise InvalidOptionError(self._no_ref(name, "branch"))
        return self.metadata.head(name)

    def start(self) -> SnapshotPosition:
        """Where a new stream begins. Raises InvalidOptionError for what the branch does not have."""
        strategy = self.settings.strategy
        head, end = self.head(), self.end()
        if strategy is Strategy.TABLE_SCAN:
            scanned = end or head
            return NOTHING if scanned is None else _scan_of(scanned)
        if strategy is Strategy.SNAPSHOT_ID:
            first = self.start_by_id()
        elif strategy is Strategy.SNAPSHOT_TIMESTAMP:
            first = self._at_or_after(self.settings.start_timestamp_ms or 0)
        elif head is None:
            return NOTHING
        elif strategy is Strategy.EARLIEST:
            *_, first = self.metadata.ancestors(head.snapshot_id)
        else:
            first = head
        self._check_order(first, end)
        if strategy is Strategy.LATEST_EXCLUSIVE:
            return SnapshotPosition(first.snapshot_id, sequence_number=first.sequence_number)
        return self._before(first)

    def end(self) -> Snapshot | None:
        """The snapshot at which the stream finishes; None: it goes on.

        Raises InvalidOptionError when there is no such snapshot, or when it is not of the branch.
        """
        settings = self.settings
        if settings.end_tag is not None:
            end = self._tagged(settings.end_tag)
        elif settings.end_snapshot_id is not None:
            end = self._snapshot(settings.end_snapshot_id)
        else:
            return None
        head = self.head()
        if head is None or not self._may_be_before(end, head):
            raise InvalidOptionError(self._not_on_branch(end))
        return end

    def before(self, timestamp_ms: int, end: Snapshot | None) -> int | None:
        """The id of the newest snapshot up to `end` that was committed before a time; None: all are
        younger.
        """
        for snapshot in () if end is None else self.metadata.ancestors(end.snapshot_id):
            if snapshot.timestamp_ms < timestamp_ms:
                return snapshot.snapshot_id
        return None

    def start_by_id(self) -> Snapshot:
        """The snapshot of start-tag or start-snapshot-id. Raises InvalidOptionError when the branch lacks
        it.
        """
        settings, head = self.settings, self.head()
        if settings.start_tag is not None:
            first = self._tagged(settings.start_tag)
        else:
            first = self._snapshot(settings.start_snapshot_id or 0)
        if head is None or all(
            each.snapshot_id != first.snapshot_id for each in self.metadata.ancestors(head.snapshot_id)
        ):
            raise InvalidOptionError(self._not_on_branch(first))
        return first

    def _at_or_after(self, timestamp_ms: int) -> Snapshot:
        head = self.head()
        found, oldest = None, None
        for snapshot in () if head is None else self.metadata.ancestors(head.snapshot_id):
            oldest = snapshot
            if snapshot.timestamp_ms < timestamp_ms:
                break
            found = snapshot
        if found is None:
            raise InvalidOptionError(
                f"table {self.table}: start-snapshot-timestamp is {timestamp_ms}, and no snapshot of branch "
                f"{self.settings.branch} was committed then or later; to wait for the next one use "
                "starting-strategy=incremental-from-latest-snapshot-exclusive"
            )
        if (
            found is oldest
            and found.timestamp_ms > timestamp_ms
            and found.parent_snapshot_id is not None
            and self.metadata.snapshot(found.parent_snapshot_id) is None
        ):
            raise InvalidOptionError(
                f"table {self.table}: start-snapshot-timestamp is {timestamp_ms}, and snapshots older than "
                f"{found.timestamp_ms} have expired, so that some of the time in between may be missing; "
                f"start "
                "at that time or later, or with starting-strategy=incremental-from-earliest-snapshot or "
                "table-scan-then-incremental"
            )
        return found

    def _check_order(self, first: Snapshot, end: Snapshot | None) -> None:
        if end is not None and all(
            each.snapshot_id != first.snapshot_id for each in self.metadata.ancestors(end.snapshot_id)
        ):
            raise InvalidOptionError(
                f"table {self.table}: the end (snapshot {end.snapshot_id}) comes before the start (snapshot "
                f"{first.snapshot_id}); choose a later end or an earlier start"
            )

    def _before(self, first: Snapshot) -> SnapshotPosition:
        parent_id = first.parent_snapshot_id
        parent = None if parent_id is None else self.metadata.snapshot(parent_id)
        if parent is not None:
            return SnapshotPosition(parent_id, sequence_number=parent.sequence_number)
        return SnapshotPosition(parent_id)

    def _may_be_before(self, snapshot: Snapshot, head: Snapshot) -> bool:
        """Whether a snapshot is before `head`. It may be as well where the history in between has expired."""
        last = head
        for last in self.metadata.ancestors(head.snapshot_id):
            if last.snapshot_id == snapshot.snapshot_id:
                return True
        return last.parent_snapshot_id is not None and last.timestamp_ms >= snapshot.timestamp_ms

    def _snapshot(self, snapshot_id: int) -> Snapshot:
        found = self.metadata.snapshot(snapshot_id)
        if found is None:
            raise InvalidOptionError(
                f"table {self.table} has no snapshot {snapshot_id}; it may have expired: `streamlake inspect "
                f"{self.location} snapshots` lists what there is"
            )
        return found

    def _tagged(self, name: str) -> Snapshot:
        ref = self.metadata.refs.get(name)
        if ref is None or ref.type != "tag":
            raise InvalidOptionError(self._no_ref(name, "tag"))
        return self._snapshot(ref.snapshot_id)

    def _no_ref(self, name: str, kind: str) -> str:
        refs = self.metadata.refs
        if name in refs:
            return f"table {self.table}: '{name}' is a {refs[name].type}, and not a {kind}"
        known = sorted(each for each, ref in refs.items() if ref.type == kind)
        near = suggestion(name, known)
        hint = f"did you mean '{near}'?" if near else f"it has {', '.join(known) or 'none'}"
        return f"table {self.table} has no {kind} '{name}'; {hint}"

    def _not_on_branch(self, snapshot: Snapshot) -> str:
        return (
            f"table {self.table}: snapshot {snapshot.snapshot_id} is not of branch {self.settings.branch}: "
            f"it was "
            f"rolled back, or it is of another branch; `streamlake inspect {self.location} history` shows "
            f"the "
            "lineage"
        )


def _scan_of(snapshot: Snapshot) -> SnapshotPosition:
    return SnapshotPosition(
        snapshot.snapshot_id, FilePosition(), is_scan=True, sequence_number=snapshot.sequence_number
    )
