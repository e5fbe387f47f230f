"""What a running stream knows of its hold: which of its checkpoints are committed, and where these end.

Place in the flow: between the planning of offsets, which gives the ends, and the sink's receipts. Receipts
may come on another thread, where commits wait in a queue. Invariant: the hold is never moved past an offset
whose receipt has not come.
"""

from __future__ import annotations

from collections.abc import Callable

from streamlake.catalog.open import open_table
from streamlake.commit.receipt import CommitReceipt
from streamlake.pipeline.iceberg.snapshot_hold import SnapshotHold
from streamlake.pipeline.iceberg.starting_position import Bounds
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import SnapshotPosition, TableOffset

_STAGED_AHEAD = 16
"""So many checkpoints may be staged without a commit when a stream starts again; more is not sensible."""


class StreamHold:
    """The hold of one run of a stream that reads `source` with hold-snapshots=true."""

    def __init__(self, source: IcebergSource) -> None:
        self._source = source
        self._hold: SnapshotHold | None = None
        self._job_id = ""
        self._ends: dict[int, SnapshotPosition] = {}
        self._committed: SnapshotPosition | None = None
        self._is_settled = False

    def begin(self, job_id: str, checkpoint_id: int, logged: Callable[[int], TableOffset | None]) -> None:
        """Set the hold before the first micro-batch of the run, `checkpoint_id`, is planned.

        `logged` reads the log of offsets. Raises InvalidOptionError where the table cannot be written.
        """
        if self._hold is not None:
            return
        table = open_table(str(self._source.location), self._source.catalog)
        position = _committed_for_sure(checkpoint_id, logged)
        if position is None:
            position = Bounds(table.name, table.location, table.metadata, self._source.settings).start()
        hold = SnapshotHold(table, self._source, job_id)
        hold.begin(position)
        self._hold, self._job_id = hold, job_id

    def planned(self, checkpoint_id: int, end: TableOffset) -> None:
        """Note where a micro-batch ends that is about to run."""
        self._ends[checkpoint_id] = end.position

    def committed(self, receipt: CommitReceipt) -> None:
        """Note a receipt of the sink, which may be of another query. For any thread."""
        if self._hold is None or receipt.job_id != self._job_id:
            return
        position = self._ends.get(receipt.checkpoint_id)
        if position is not None:
            self._ends = {at: end for at, end in self._ends.items() if at > receipt.checkpoint_id}
            self._committed = position
            self._hold.reached(position)

    def keep(self) -> None:
        """Move the hold, if it is time to; see SnapshotHold."""
        if self._hold is not None:
            self._hold.keep()

    def settle(self, offset: TableOffset, *, is_finished: bool) -> None:
        """Leave the hold as the run ends, which has planned up to an offset: where the next run begins, or
        away, where the stream `is_finished` and all of it is committed.
        """
        if self._hold is None or self._is_settled:
            return
        self._is_settled = True
        if is_finished and self._committed in (None, offset.position) and not self._ends:
            self._hold.remove()
        else:
            self._hold.keep(at_once=True)


def _committed_for_sure(
    checkpoint_id: int, logged: Callable[[int], TableOffset | None]
) -> SnapshotPosition | None:
    """Where a run begins at the earliest, with checkpoints that are staged and not committed; None: where the
    stream begins.
    """
    for number in range(max(0, checkpoint_id - 1 - _STAGED_AHEAD), checkpoint_id + 1):
        offset = logged(number)
        if offset is not None and number == 0 and offset.start is not None:
            return offset.start
        if offset is not None:
            # The first entry of a directory that goes on where a lost one ended has no start.
            return offset.position
    return None
