"""Putting a rejects table back together with its table: records that the stream reads again are no rejects any more.

Part of `streamlake recover` where the checkpoint directory of a direct path is behind what the rejects table has. Invariant:
only records are taken out that are read again as far as the checkpoint directory tells; those that were rejected before, by
whichever directory, stay, and so do all where it does not tell where the stream began.
It can be done any number of times, and what cut it short is made good by doing it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from streamlake.source.offsets import PartitionOffsets, SourceOffsets
from streamlake.spec.snapshot import MAIN_BRANCH
from streamlake.table.table import Table


@dataclass(frozen=True)
class RejectsRewind:
    """What is to be done to the rejects table `rejects`: `records` are taken out of it, and it is marked to be where
    `at` ends. `is_known`: whether it can be told which records the stream reads again."""

    rejects: Table
    at: CheckpointIdentity
    records: tuple[str, ...]
    history: History
    is_known: bool = True

    @property
    def text(self) -> str:
        """The same in words."""
        named = (
            "no checkpoint"
            if self.at.checkpoint_id == NO_CHECKPOINT
            else f"checkpoint {self.at.checkpoint_id}"
        )
        mark = f"and mark {named} there as the last one"
        if not self.is_known:
            return (
                f"keep all records of {self.rejects.name}, because the checkpoint directory does not say any more where the stream "
                f"began, {mark}; of those that the stream reads again there will be two"
            )
        text = (
            f"take {len(self.records)} records that the stream reads again out of {self.rejects.name}, {mark}"
        )
        if not self.records:
            return text
        passed = "Kafka does not have any more"
        if self.at.checkpoint_id == NO_CHECKPOINT:
            passed += ", or starting-offsets passes over by now,"
        return f"{text}; what {passed} does not come again: replay it before (`streamlake replay-rejects`), or copy it"

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


def rejects_after(
    rejects: Table, at: CheckpointIdentity, began: Sequence[str] | None = None
) -> RejectsRewind | None:
    """What has to be done before the stream of `at` goes on after that checkpoint; None where the rejects table has nothing of
    a later one. `at` is the table's own identity, with the offsets at which it ends, or NO_CHECKPOINT; `began` are then the
    offsets of the directory's first checkpoint, None where nobody knows them any more. Raises SourceError."""
    own = own_identity(at)
    history = History.of(rejects.metadata, MAIN_BRANCH, own.pipeline, own.job_id)
    held = history.marker
    if held is None or held.checkpoint_id <= at.checkpoint_id:
        return None
    rows = TableScan(rejects, columns=list(PLACE_COLUMNS)).to_arrow()
    rows = rows.filter(pc.equal(rows.column("pipeline"), at.pipeline))
    if at.checkpoint_id == NO_CHECKPOINT:
        start = _beginning(began)
        if not start:
            return RejectsRewind(rejects, own, (), history, is_known=False)
    else:
        start = _offsets(at.end_offsets).positions if at.end_offsets else {}
    again = rows.filter(_is_read_again(rows, start))
    return RejectsRewind(rejects, own, tuple(places(again).to_pylist()), history)


def _is_read_again(rows: pa.Table, start: PartitionOffsets) -> pa.Array:
    """(n,) bool: whether the records lie at these offsets or behind them; a partition that is not there is read from its
    beginning."""
    found = [
        start.get((topic, partition), 0) <= offset
        for topic, partition, offset in zip(
            *(rows.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
        )
    ]
    return pa.array(found, pa.bool_())


def _beginning(began: Sequence[str] | None) -> PartitionOffsets:
    """Where a directory's first checkpoint begins; nothing where that is not known."""
    try:
        return _offsets(began).first if began else {}
    except SourceError:
        # A tick whose entry in our log is gone.
        return {}


def _offsets(offsets: Sequence[str]) -> SourceOffsets:
    try:
        (text,) = offsets
        return SourceOffsets.from_json(json.loads(text))
    except ValueError as error:
        raise SourceError(f"these are no offsets of one Kafka source: {', '.join(offsets)[:200]}") from error
