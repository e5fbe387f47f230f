"""Putting a rejects table back together with its table: records that the stream reads again are no rejects any more.

Part of `streamlake recover` where the checkpoint directory of a direct path is behind what the rejects table has. Invariant:
only records are taken out that are read again; those that were rejected before, by whichever checkpoint directory, stay.
It can be done any number of times, and what cut it short is made good by doing it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit import recovery as marks
from streamlake.commit.history import History
from streamlake.errors import SourceError
from streamlake.pipeline.rejects_settling import settle
from streamlake.pipeline.rejects_table import own_identity
from streamlake.pipeline.replay_plan import PLACE_COLUMNS, ReplayPlan, places
from streamlake.read.scan import TableScan
from streamlake.source.offsets import SourceOffsets
from streamlake.spec.snapshot import MAIN_BRANCH
from streamlake.table.table import Table


@dataclass(frozen=True)
class RejectsRewind:
    """What is to be done to the rejects table `rejects`: `records` are taken out of it, and it is marked to be where
    `at` ends."""

    rejects: Table
    at: CheckpointIdentity
    records: tuple[str, ...]
    history: History

    @property
    def text(self) -> str:
        """The same in words."""
        named = (
            "no checkpoint"
            if self.at.checkpoint_id == NO_CHECKPOINT
            else f"checkpoint {self.at.checkpoint_id}"
        )
        return (
            f"take {len(self.records)} records that the stream reads again out of {self.rejects.name}, and mark {named} "
            "there as the last one"
        )

    def carry_out(self) -> None:
        """Do it. Raises ConflictValidationError when a driver has added rejects meanwhile, CommitConflictError."""
        if self.records:
            aside = replace(
                self.at,
                pipeline=f"{self.at.pipeline}:rewind",
                job_id=f"{self.at.job_id}:rewind",
                end_offsets=(),
            )
            settle(self.rejects, ReplayPlan(aside, self.records))
        marks.adopt(self.rejects, self.at, self.history, ())


def rejects_after(rejects: Table, at: CheckpointIdentity) -> RejectsRewind | None:
    """What has to be done before the stream of `at` goes on after that checkpoint; None where the rejects table has nothing of
    a later one. `at` is the table's own identity, with the offsets at which it ends."""
    own = own_identity(at)
    history = History.of(rejects.metadata, MAIN_BRANCH, own.pipeline, own.job_id)
    held = history.marker
    if held is None or held.checkpoint_id <= at.checkpoint_id:
        return None
    rows = TableScan(rejects, columns=list(PLACE_COLUMNS)).to_arrow()
    rows = rows.filter(pc.equal(rows.column("pipeline"), at.pipeline))
    again = rows.filter(_is_read_again(rows, at))
    return RejectsRewind(rejects, own, tuple(places(again).to_pylist()), history)


def _is_read_again(rows: pa.Table, at: CheckpointIdentity) -> pa.Array:
    """(n,) bool: whether the records lie behind the offsets where the checkpoint ends."""
    known = _positions(at.end_offsets)
    found = [
        known(topic, partition) <= offset
        for topic, partition, offset in zip(
            *(rows.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
        )
    ]
    return pa.array(found, pa.bool_())


def _positions(offsets: Sequence[str]) -> Callable[[str, int], int]:
    """The next offset of a topic's partition; 0 for one that was not known, which is read from its beginning."""
    if not offsets:
        return lambda topic, partition: 0
    try:
        (text,) = offsets
        positions = SourceOffsets.from_json(json.loads(text)).positions
    except ValueError as error:
        raise SourceError(f"these are no offsets of one Kafka source: {', '.join(offsets)[:200]}") from error
    return lambda topic, partition: positions.get((topic, partition), 0)
