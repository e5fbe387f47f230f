"""Removes records from a rejects table that the stream reads again after a recovery.

It is part of `streamlake recover`, where the checkpoint directory of a direct path is behind what the rejects
table has. Invariant: a record is only removed if the checkpoint directory shows that it is read again.
Records that were rejected before stay, whichever directory rejected them, and so do all records where the
directory does not show where the stream began. It can be repeated any number of times; a repetition completes
an interrupted run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit import recovery_commits
from streamlake.commit.history import History
from streamlake.errors import SourceError
from streamlake.operate.replay.rejects_settling import settle
from streamlake.operate.replay.replay_plan import PLACE_COLUMNS, ReplayPlan, places
from streamlake.pipeline.runs.rejected.rejects_table import own_identity
from streamlake.read.scan import TableScan
from streamlake.source.offsets import PartitionOffsets, SourceOffsets
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.table import Table
from streamlake.wording import counted


@dataclass(frozen=True)
class RejectsRewind:
    """The change to the rejects table `rejects`.

    `records` are removed, and its commit marker is set to the end of `at`. `is_known`: whether it is known
    which records the stream reads again.
    """

    rejects: Table
    at: CheckpointIdentity
    records: tuple[str, ...]
    history: History
    is_known: bool = True

    @property
    def text(self) -> str:
        """A description of the change."""
        named = (
            "no checkpoint"
            if self.at.checkpoint_id == NO_CHECKPOINT
            else f"checkpoint {self.at.checkpoint_id}"
        )
        ending = f"and mark {named} there as the last one"
        if not self.is_known:
            return (
                f"keep all records of {self.rejects.name}, because the checkpoint directory no longer says "
                f"where the stream began, {ending}; of those that the stream reads again there will be two"
            )
        text = (
            f"take {counted(len(self.records), 'record')} that the stream reads again out of "
            f"{self.rejects.name}, {ending}"
        )
        if not self.records:
            return text
        passed = "Kafka does not have any more"
        if self.at.checkpoint_id == NO_CHECKPOINT:
            passed += ", or starting-offsets passes over by now,"
        return (
            f"{text}; what {passed} does not come again: replay it before (`streamlake replay-rejects`), or "
            "copy it"
        )

    def carry_out(self) -> None:
        """Make the change.

        Raises ConflictValidationError when a driver has added rejects meanwhile, CommitConflictError.
        """
        if self.records:
            rewind_identity = replace(
                self.at,
                pipeline=f"{self.at.pipeline}:rewind",
                job_id=f"{self.at.job_id}:rewind",
                end_offsets=(),
            )
            settle(self.rejects, ReplayPlan(rewind_identity, self.records))
        recovery_commits.adopt(self.rejects, self.at, self.history, ())


def rejects_after(
    rejects: Table, at: CheckpointIdentity, began: Sequence[str] | None = None
) -> RejectsRewind | None:
    """The change to make before the stream of `at` continues after that checkpoint.

    None where the rejects table has nothing of a later checkpoint. `at` is the table's own identity, with the
    offsets that it ends at, or NO_CHECKPOINT. Then `began` are the start offsets of the directory's first
    checkpoint, None where they are no longer known. Raises SourceError.
    """
    own = own_identity(at)
    history = History.of(rejects.metadata, MAIN_BRANCH, own.pipeline, own.job_id)
    held = history.marker
    if held is None or held.checkpoint_id <= at.checkpoint_id:
        return None
    rows = TableScan(rejects, columns=list(PLACE_COLUMNS)).to_arrow()
    rows = rows.filter(pc.equal(rows.column("pipeline"), at.pipeline))
    start = read_again_from(at, began)
    if at.checkpoint_id == NO_CHECKPOINT and not start:
        return RejectsRewind(rejects, own, (), history, is_known=False)
    again = rows.filter(is_read_again(rows, start))
    return RejectsRewind(rejects, own, tuple(places(again).to_pylist()), history)


def read_again_from(at: CheckpointIdentity, began: Sequence[str] | None) -> PartitionOffsets:
    """The offsets from which a stream reads again; see `rejects_after`. Raises SourceError."""
    if at.checkpoint_id == NO_CHECKPOINT:
        return _beginning(began)
    return _offsets(at.end_offsets).positions if at.end_offsets else {}


def is_read_again(rows: pa.Table, start: PartitionOffsets) -> pa.Array:
    """(n,) bool: whether the records of a rejects table are at these offsets or later.

    A partition without an offset is read from its beginning.
    """
    found = [
        start.get((topic, partition), 0) <= offset
        for topic, partition, offset in zip(
            *(rows.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
        )
    ]
    return pa.array(found, pa.bool_())


def _beginning(began: Sequence[str] | None) -> PartitionOffsets:
    """Where a directory's first checkpoint begins; empty where that is not known."""
    try:
        return _offsets(began).first if began else {}
    except SourceError:
        # A tick whose entry in streamlake's offset log is gone.
        return {}


def _offsets(offsets: Sequence[str]) -> SourceOffsets:
    try:
        (text,) = offsets
        return SourceOffsets.from_json(json.loads(text))
    except ValueError as error:
        raise SourceError(f"these are not offsets of one Kafka source: {', '.join(offsets)[:200]}") from error
