"""Where a stream over a table stands, looked at from outside, with the stream's own enumerator.

For `check`, `status` and `recover`: they ask for what is left to read, and plan nothing that a stream would
not plan. Invariant: the table is only read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import FilePosition, SnapshotPosition, TableOffset
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table
from streamlake.wording import counted

NO_DELETES = ("append", "replace")
"""The operations of snapshots that leave no row out."""


@dataclass(frozen=True)
class ReadPosition:
    """The offset that is read on from, and how many snapshots before it have expired unread (0: none)."""

    enumerator: SnapshotEnumerator
    offset: TableOffset
    lost: int = 0

    def stopping(self) -> list[Snapshot]:
        """The snapshots ahead that delete or overwrite, which a stream of appended rows cannot show.

        Raises LineageError where the history does not go on from the offset.
        """
        if self.offset.planning.read_mode != "append":
            return []
        half_read = self.offset.position.snapshot_id
        return [
            each
            for each in self.enumerator.due(self.offset)
            if each.operation not in NO_DELETES and each.snapshot_id != half_read
        ]


def read_position(table: Table, source: IcebergSource, known: TableOffset | None) -> ReadPosition:
    """The position after `known`; None: where a new stream begins.

    Expired snapshots are left behind where the source says so. Raises InvalidOptionError for options that do
    not fit the table, LineageError where its history does not go on from `known`, FeatureUnsupportedError.
    """
    enumerator = SnapshotEnumerator(table, source)
    if known is None:
        first = enumerator.first()
        return ReadPosition(
            enumerator, first if first.start is None else replace(first, position=first.start)
        )
    if not source.settings.fail_on_data_loss:
        after = enumerator.next(known)
        if after.lost:
            return ReadPosition(enumerator, after, after.lost)
    return ReadPosition(enumerator, known)


def place_in_words(position: SnapshotPosition) -> str:
    """A position for messages: "after snapshot 7"."""
    if position.snapshot_id is None:
        return "with the table's first snapshot"
    if position.is_scan and position.within == FilePosition():
        return f"with all rows of snapshot {position.snapshot_id}"
    if position.within is not None:
        return f"in the middle of snapshot {position.snapshot_id}"
    return f"after snapshot {position.snapshot_id}"


def lost_snapshots(count: int) -> str:
    """What `fail-on-data-loss=false` costs, for messages."""
    return f"{counted(count, 'snapshot')} or more have expired before they were read, and are left out"
