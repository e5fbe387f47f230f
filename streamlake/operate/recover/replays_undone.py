"""Puts records back into a rejects table whose replay a recovery undoes.

A replay takes its records out of the rejects table once the target table has them. Where a recovery moves the
target table back to before that, they would be in neither. They are read from the snapshot of the rejects
table from before the replay. Invariant: what the stream reads again is not put back; and the plan can be
carried out any number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamlake import ids
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.committer import Committer
from streamlake.commit.marker import JOB_ID, OFFSETS_DIGEST, REPLAY_JOB_PREFIX
from streamlake.operate.recover.recovery_plan import Step
from streamlake.operate.recover.rejects_rewinding import is_read_again
from streamlake.operate.replay.rejects_settling import next_checkpoint, staged_rejects
from streamlake.operate.replay.replay_plan import places
from streamlake.read.scan import TableScan
from streamlake.source.offsets import PartitionOffsets
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.table.table import Table


@dataclass(frozen=True)
class ReplaysUndone:
    """What becomes of the records of replays: steps that put them back, and what cannot be put back."""

    steps: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()


def replays_undone(
    rejects: Table | None, undone: Iterable[Snapshot], at: CheckpointIdentity, start: PartitionOffsets
) -> ReplaysUndone:
    """What to do about the replays among the snapshots `undone` of the target table.

    `at` is the checkpoint that the table goes back to, `start` the offsets from which the stream reads again.
    """
    replays = [each for each in undone if each.summary.get(JOB_ID, "").startswith(REPLAY_JOB_PREFIX)]
    rows: list[pa.Table] = []
    lost: list[str] = []
    for replay in replays:
        found = None if rejects is None else _settled(rejects, replay)
        if found is None:
            lost.append(str(replay.snapshot_id))
        else:
            rows.append(found.filter(pc.invert(is_read_again(found, start))))
    back = pa.concat_tables(rows) if rows else None
    steps: tuple[Step, ...] = ()
    if rejects is not None and back is not None and back.num_rows:
        table, due = rejects, back
        text = (
            f"put {back.num_rows} records back into {rejects.name}, whose replay is undone and which the "
            "stream does not read again"
        )
        steps = (Step(text, lambda: _put_back(table, due, at)),)
    return ReplaysUndone(steps, _warnings(lost))


def _warnings(lost: Sequence[str]) -> tuple[str, ...]:
    if not lost:
        return ()
    return (
        f"the replays of rejected records in the snapshots {', '.join(lost[:5])} are undone, and nothing "
        "shows their records any more: the rejects table's snapshots from then have expired, or the replay "
        "did not finish. What the rejects table lacks must be sent again",
    )


def _settled(rejects: Table, replay: Snapshot) -> pa.Table | None:
    """The records that a replay took out of the rejects; None where the snapshots do not show it.

    None of them where the replay died before it took them out.
    """
    job = (replay.summary[JOB_ID], replay.summary.get(OFFSETS_DIGEST))
    for snapshot in rejects.snapshots:
        if (snapshot.summary.get(JOB_ID), snapshot.summary.get(OFFSETS_DIGEST)) != job:
            continue
        parent = snapshot.parent_snapshot_id
        if parent is None or parent not in rejects.metadata.snapshots_by_id:
            return None
        before = TableScan(rejects, snapshot_id=parent).to_arrow()
        after = TableScan(rejects, snapshot_id=snapshot.snapshot_id).to_arrow()
        return before.filter(pc.invert(pc.is_in(places(before), places(after))))
    return None


def _put_back(rejects: Table, rows: pa.Table, at: CheckpointIdentity) -> None:
    rejects.refresh()
    here = places(TableScan(rejects).to_arrow())
    due = rows.filter(pc.invert(pc.is_in(places(rows), here)))
    if not due.num_rows:
        return
    committer = Committer(rejects, MAIN_BRANCH)
    own = CheckpointIdentity(
        f"{at.pipeline}:undone", f"{at.job_id}:undone", NO_CHECKPOINT, end_offsets=(ids.new_uuid(),)
    )
    committable, files = staged_rejects(rejects, next_checkpoint(committer, own), [due], "append")
    committer.commit(committable, files=files)
