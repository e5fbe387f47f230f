"""The plans of `streamlake recover`: ways out of a lineage finding, shown before they are carried out.

    adopt      the table takes the directory as the pipeline's continuation; its rows stay as they are
    fork       the directory goes on as a pipeline of its own, beside the one that wrote the table
    rewind     directory and table go back to one checkpoint; the stream writes what came after it again
    rollback   the branch goes to the snapshot of the checkpoint that the directory is at

It runs without Spark. Invariants: the checkpoint directory is changed before the table, and the table's
commit markers last, so that an interrupted plan leaves a finding with the same way out. No data file is
touched. What the job has staged and does not belong to the state that a plan leads to is removed, so that it
is not committed later. Where the stream reads records again, their rejects are removed before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_note import NO_CHECKPOINT, Calls, Noted
from streamlake.commit import recovery_commits
from streamlake.commit.lineage import Kind, Way
from streamlake.commit.marker import JOB_ID, PROPERTY_PREFIX, REPLAY_JOB_PREFIX, Marker
from streamlake.errors import InvalidOptionError
from streamlake.operate.recover.recovery_plan import Plan, Step
from streamlake.operate.recover.recovery_plan import named_checkpoint as _named
from streamlake.operate.recover.recovery_plan import named_range as _range
from streamlake.operate.recover.recovery_state import RecoveryState
from streamlake.operate.recover.rejects_rewinding import read_again_from, rejects_after
from streamlake.operate.recover.replays_undone import ReplaysUndone, replays_undone
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table
from streamlake.wording import counted


def without_table(directory: SparkDirectory, pipeline: str, rejects: Table | None = None) -> Plan:
    """The way out where the table no longer exists: the directory goes back to before its first checkpoint.

    The stream then creates and fills a new table. The note needs no change: before the first checkpoint it
    binds to no table.
    """
    text = (
        f"delete every entry of Spark's commit log and offset log in {directory.location}, so that Spark "
        f"plans {_named(NO_CHECKPOINT + 1)} again from the source's beginning"
    )
    return Plan(
        (
            Step(text, lambda: directory.go_back_to(NO_CHECKPOINT)),
            *_rejects_rewound(
                rejects, CheckpointIdentity(pipeline, directory.job_id, NO_CHECKPOINT), directory
            ),
        )
    )


def _rejects_rewound(rejects: Table | None, at: CheckpointIdentity, directory: SparkDirectory) -> list[Step]:
    began = directory.end_offsets(NO_CHECKPOINT + 1) if at.checkpoint_id == NO_CHECKPOINT else None
    rewind = None if rejects is None else rejects_after(rejects, at, began)
    return [] if rewind is None else [Step(rewind.text, rewind.carry_out)]


class Recovery:
    """Plans that repair one pipeline.

    `noted_table` is the table's name in the sink's note, `rejects` its rejects table, if there is one. No
    driver of the pipeline may run: one that does is fenced as soon as a plan has changed the table.
    """

    def __init__(
        self,
        table: Table,
        branch: str,
        pipeline: str | None,
        directory: SparkDirectory,
        noted_table: str,
        rejects: Table | None = None,
    ) -> None:
        self.table = table
        self.branch = branch
        self.directory = directory
        self._rejects = rejects
        self._at = RecoveryState(table, branch, pipeline, directory, noted_table)
        self.pipeline = self._at.pipeline
        self.findings = self._at.findings

    def require_known_pipeline(self) -> None:
        """See RecoveryState.require_known_pipeline."""
        self._at.require_known_pipeline()

    def adopt(self) -> Plan:
        """Keep table and directory, and record that the table holds what the directory has committed."""
        at = self._at.adopted_checkpoint()
        offsets = () if at == NO_CHECKPOINT else self._at.offsets(at)
        identity = CheckpointIdentity(self.pipeline, self.directory.job_id, at, offsets, offsets)
        text = (
            f"commit an empty snapshot to branch '{self.branch}' that marks {_named(at)} of job "
            f"{self.directory.job_id} as the last one of pipeline '{self.pipeline}', so that "
            f"{_named(at + 1)} is the next to be committed"
        )
        key_ids = self._at.key_ids()
        due = self._at.due()
        return Plan(
            (
                *self._forgetting(after=at, kept=due),
                Step(text, lambda: recovery_commits.adopt(self.table, identity, self._at.history, key_ids)),
                self._noting(at, due, passed=self.directory.last_completed),
            ),
            (*self._left_behind(), *self._not_there()),
        )

    def fork(self) -> Plan:
        """Make the directory's job a pipeline of its own.

        What is in the table stays, and belongs to the other pipeline. Raises InvalidOptionError while staged
        checkpoints are due, or lost.
        """
        done = self.directory.last_completed
        due = [each for each in (staged.identity.checkpoint_id for staged in self._at.due()) if each <= done]
        if due:
            raise InvalidOptionError(
                f"{_range(due)} of job {self.directory.job_id} are staged for {self.table.location} and not "
                "committed, and a fork leaves their rows out. Start the stream once as it was, under its old "
                "name, or adopt the directory"
            )
        held = self._at.floor()
        lost = self._at.lost(held, ())
        if lost:
            raise InvalidOptionError(
                f"{_range(lost)} of job {self.directory.job_id}, which Spark counts as done, are neither in "
                f"{self.table.location} nor still staged for it, and a fork leaves their rows out. Put their "
                f"files back from a copy of the table's metadata folder, use {Way.REWIND.value}={held} to "
                "have the stream write them again, or adopt the directory"
            )
        steps = []
        job_id = self.directory.job_id
        if self._at.is_known(job_id):
            text = (
                f"give {self.directory.location} a query id of its own: {job_id} has written this table "
                "already"
            )
            steps.append(Step(text, self.directory.take_new_job_id))
        name = f"{self._at.given}-fork-{max(self.directory.last_completed, 0)}"
        while f"{PROPERTY_PREFIX}{name}" in self.table.properties:
            name += "x"
        pipelines = {**({} if self._at.noted is None else self._at.noted.pipelines), self._at.given: name}
        noted = Noted(
            self.table.uuid,
            committed=False,
            pipelines=pipelines,
            passed_id=done,
            calls=Calls.FUNCTION if self._at.noted is None else self._at.noted.calls,
            passed_digest=self._at.logged_digest(done),
        )
        text = (
            f"note in {self.directory.location} that its pipeline '{self._at.given}' is '{name}' from here "
            f"on; {_named(self.directory.last_completed + 1)} is the next to be committed, and rows that are "
            "in the table already are written again where the source still has them after it"
        )
        note, named = self.directory.write_note, self._at.named
        steps.append(Step(text, lambda: note(noted, named, self.branch, NO_CHECKPOINT)))
        return Plan(tuple(steps))

    def rewind(self, checkpoint_id: int) -> Plan:
        """Put directory and table back to a checkpoint.

        Raises InvalidOptionError when one of them cannot go there.
        """
        self._at.require_in_directory(checkpoint_id)
        marker, snapshot = self._at.table_at(checkpoint_id)
        torn = [int(name.rpartition("/")[2]) for name in self.directory.torn]
        gone = sorted({number for number in (*self.directory.planned, *torn) if number > checkpoint_id})
        steps = []
        if gone:
            text = (
                f"delete the entries of {_range(gone)} from Spark's commit log and offset log in "
                f"{self.directory.location}, so that Spark plans {_named(checkpoint_id + 1)} again from the "
                "source"
            )
            steps.append(Step(text, lambda: self.directory.go_back_to(checkpoint_id)))
        kept = [staged for staged in self._at.due() if staged.identity.checkpoint_id <= checkpoint_id]
        steps += self._forgetting(after=checkpoint_id, kept=kept)
        at = NO_CHECKPOINT if marker is None else marker.checkpoint_id
        steps.append(self._noting(at, kept, done=checkpoint_id))
        replays = self._replays(checkpoint_id, snapshot)
        steps += [*self._rejects_at(checkpoint_id), *replays.steps]
        if marker is not None:
            steps.append(self._moving(marker, snapshot))
        return Plan(tuple(steps), (*self._undone(snapshot), *replays.warnings))

    def rollback(self) -> Plan:
        """Put the branch back to the checkpoint that the directory is at.

        Raises InvalidOptionError when the table no longer has a snapshot of it.
        """
        found = self._at.newest_of_directory()
        if found is None:
            raise InvalidOptionError(
                f"{self.table.location} has no snapshot of a checkpoint that {self.directory.location} (job "
                f"{self.directory.job_id}, at {_named(self.directory.last_completed)}) has: it has expired, "
                "or was never there. Adopt the directory, or restore one that fits the table"
            )
        marker, snapshot = found
        floor = min(self._at.floor(), self.directory.last_completed)  # later ones are planned again
        if floor > marker.checkpoint_id:
            raise InvalidOptionError(
                f"the newest snapshot of {self.table.location} that belongs to {self.directory.location} is "
                f"of checkpoint {marker.checkpoint_id}, but the directory has committed checkpoint {floor}: "
                f"rows in between would be missing; {self._at.common(self.directory.last_completed + 1)}"
            )
        target = None if self._at.head_id() == snapshot.snapshot_id else snapshot
        kept = [staged for staged in self._at.due() if staged.identity.checkpoint_id > marker.checkpoint_id]
        if self._at.is_at(marker):
            target = None  # what other writers have added since stays
        replays = self._replays(marker.checkpoint_id, target)
        return Plan(
            (
                *self._forgetting(after=marker.checkpoint_id, kept=kept),
                self._noting(marker.checkpoint_id, kept),
                *self._rejects_at(marker.checkpoint_id),
                *replays.steps,
                self._moving(marker, target),
            ),
            (*self._undone(target), *replays.warnings),
        )

    def _replays(self, checkpoint_id: int, target: Snapshot | None) -> ReplaysUndone:
        """What becomes of the records of replays that moving the branch undoes."""
        at, _ = self._ended_at(checkpoint_id)
        began = self.directory.end_offsets(NO_CHECKPOINT + 1) if checkpoint_id == NO_CHECKPOINT else None
        above = self._above(target)
        start = read_again_from(at, began) if above and self._rejects is not None else {}
        return replays_undone(self._rejects, above, at, start)

    def _rejects_at(self, checkpoint_id: int) -> list[Step]:
        at, is_known = self._ended_at(checkpoint_id)
        return _rejects_rewound(self._rejects, at, self.directory) if is_known else []

    def _ended_at(self, checkpoint_id: int) -> tuple[CheckpointIdentity, bool]:
        """A checkpoint with the offsets that it ends at, and whether the directory has them."""
        offsets = () if checkpoint_id == NO_CHECKPOINT else self.directory.end_offsets(checkpoint_id)
        at = CheckpointIdentity(self.pipeline, self.directory.job_id, checkpoint_id, (), offsets or ())
        return at, offsets is not None

    def _moving(self, marker: Marker, snapshot: Snapshot | None) -> Step:
        action = (
            f"set the property of pipeline '{self.pipeline}' to {_named(marker.checkpoint_id)} of job "
            f"{marker.job_id}"
        )
        if snapshot is not None:
            action = (
                f"move branch '{self.branch}' from snapshot {self._at.head_id()} to snapshot "
                f"{snapshot.snapshot_id} ({_named(marker.checkpoint_id)}), and {action}, in one commit"
            )
        key_ids, target = self._at.key_ids(), None if snapshot is None else snapshot.snapshot_id
        return Step(
            action,
            lambda: recovery_commits.move_branch(self.table, target, marker, self._at.history, key_ids),
        )

    def _forgetting(self, *, after: int, kept: list[Committable]) -> list[Step]:
        """Remove staged checkpoints that would be committed by mistake."""
        wanted = {staged.identity.checkpoint_id for staged in kept}
        gone = [
            staged.identity
            for staged in self._at.staged
            if staged.identity.checkpoint_id > after and staged.identity.checkpoint_id not in wanted
        ]
        if not gone:
            return []
        numbers = _range([identity.checkpoint_id for identity in gone])
        text = (
            f"forget what is staged for {numbers} of job {self.directory.job_id}, so that nobody commits it "
            "again"
        )

        def forget() -> None:
            for identity in gone:
                self._at.store.remove(identity)

        return [Step(text, forget)]

    def _noting(
        self,
        checkpoint_id: int,
        kept: Sequence[Committable] = (),
        *,
        done: int | None = None,
        passed: int | None = None,
    ) -> Step:
        """Note that the table holds a checkpoint.

        `done`: the last checkpoint that the directory has finished then (None: as it is). `passed`:
        checkpoints up to this one that are not in the table stay out of it (None: as noted).
        """
        staged = [each.identity.checkpoint_id for each in kept]
        agreed = None if passed is None else max([checkpoint_id, *staged])
        noted = self._at.noted or Noted(self.table.uuid, committed=False, calls=Calls.FUNCTION)
        lost = self._at.lost(checkpoint_id, staged) if passed is None else []
        if lost or (passed is None and noted.passed_id is not None):
            done = self.directory.last_completed if done is None else done
            passed = min(noted.covered(self._at.logged_digest), done, *(each - 1 for each in lost))
        noted = replace(
            noted,
            table_uuid=self.table.uuid,
            committed=checkpoint_id != NO_CHECKPOINT,
            checkpoint_id=None if checkpoint_id == NO_CHECKPOINT else checkpoint_id,
            staged_id=max((each for each in staged if each <= self.directory.last_completed), default=None),
            passed_id=passed,
            staged_digest=None,
            passed_digest=None if passed is None else self._at.logged_digest(passed),
        )
        text = (
            f"note in {self.directory.location} that the table (uuid {self.table.uuid}) holds "
            f"{_named(checkpoint_id)}"
        )
        note, named = self.directory.write_note, self._at.named
        return Step(text, lambda: note(noted, named, self.branch, agreed))

    def _undone(self, target: Snapshot | None) -> tuple[str, ...]:
        """Warnings about commits of other writers that moving the branch undoes."""
        others = [
            each
            for each in self._above(target)
            if each.summary.get(JOB_ID) != self.directory.job_id
            and not each.summary.get(JOB_ID, "").startswith(REPLAY_JOB_PREFIX)
        ]
        if not others:
            return ()
        listed = ", ".join(str(each.snapshot_id) for each in others[:5]) + (
            ", ..." if len(others) > 5 else ""
        )
        return (
            f"{counted(len(others), 'snapshot')} of other writers undone as well, to be repeated: {listed}",
        )

    def _above(self, target: Snapshot | None) -> list[Snapshot]:
        """The snapshots that moving the branch undoes, newest first."""
        if target is None:
            return []
        return list(takewhile(lambda each: each.snapshot_id != target.snapshot_id, self._at.ancestry()))

    def _left_behind(self) -> tuple[str, ...]:
        if not any(finding.kind is Kind.OTHER_JOB for finding in self.findings):
            return ()
        named = self._at.history.named
        assert named is not None
        old = CommittableStore(self.table.io, self.table.locations, named.marker.job_id, self.branch)
        after = [each for each in old.pending() if each.identity.checkpoint_id > named.marker.checkpoint_id]
        if not after:
            return ()
        numbers = _range([each.identity.checkpoint_id for each in after])
        return (
            f"{numbers} of the old job {named.marker.job_id} are staged and not committed: their rows "
            "come only if the new directory reads them",
        )

    def _not_there(self) -> tuple[str, ...]:
        if not self._at.gone:
            return ()
        return (
            f"files of {_range(self._at.gone)} are no longer there: it is assumed to have been committed, "
            "compacted and expired. Where its files were deleted before that, its rows are lost to the "
            "table, and the stream has to write them again from the source",
        )
