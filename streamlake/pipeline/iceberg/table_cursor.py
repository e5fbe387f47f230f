"""Progress of one query over a table: the state between a query's calls to its source.

A query asks for the latest offset per trigger, for the first one whenever it plans the first micro-batch,
again when that one is replayed, and for the splits of each micro-batch. After a restart it may first ask for
the splits between the checkpoint's last two offsets, which shows where it stood.

The first offset is always None (nothing), and the end of the first micro-batch says where reading begins.
Invariant: what `latest` returns never goes back, and is the same value while there is nothing new.
"""

from __future__ import annotations

from typing import Any

from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.read.splits.split_protocols import TaskSplit
from streamlake.source.iceberg.iceberg_options import ReadLimits
from streamlake.source.iceberg.table_offset import TableOffset


class TableCursor:
    """The progress of one query.

    `known` is the last offset of the checkpoint, when there is one. `target`: the id of the last snapshot to
    read, None for no such limit.
    """

    def __init__(
        self, enumerator: SnapshotEnumerator, *, known: TableOffset | None = None, target: int | None = None
    ) -> None:
        self._enumerator = enumerator
        self._known = known
        self._target = target

    def latest(self, limits: ReadLimits | None = None) -> TableOffset:
        """Where the next micro-batch ends; the last offset again when there is nothing new.

        `limits` None: those of the source's options. Raises as `SnapshotEnumerator.next`.
        """
        if self._known is None:
            self._known = self._enumerator.first(target=self._target, limits=limits)
        else:
            self._known = self._enumerator.next(self._known, target=self._target, limits=limits)
        return self._known

    def splits(
        self, start: TableOffset | None, end: TableOffset, *, in_order: bool = False
    ) -> list[TaskSplit]:
        """The splits that the micro-batch between two offsets reads; see `SnapshotEnumerator.splits`."""
        if self._known is None:
            self._known = end
        return self._enumerator.splits(start, end, in_order=in_order)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read, now or later: the stream's end or the target is reached."""
        known = self._known
        if known is None:
            return False
        at_target = self._target is not None and self._enumerator.has_come_to(self._target, known)
        return at_target or self._enumerator.is_finished(known)


def offset_to_json(offset: TableOffset | None) -> dict[str, Any]:
    """The JSON object of an offset; an empty one before the first micro-batch."""
    return {} if offset is None else offset.to_json()


def offset_from_json(value: Any) -> TableOffset | None:
    """The inverse of `offset_to_json`. Raises SourceError for any other value."""
    return None if value == {} else TableOffset.from_json(value)
