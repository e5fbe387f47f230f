"""The ways out of a lineage finding, as plans that are shown before they are carried out: what `streamlake recover` does.

    adopt      the table takes the directory as the pipeline's continuation; its rows stay as they are
    fork       the directory goes on as a pipeline of its own, beside the one that wrote the table
    rewind     directory and table go back to one checkpoint; the stream writes what came after it again
    rollback   the branch goes to the snapshot of the checkpoint that the directory is at

No Spark. Invariants: the checkpoint directory is changed before the table, the table's marks last, so that a plan that was
cut short leaves a finding with the same way out; no data file is touched; what was staged by the job and does not
belong to the state that a plan leads to is forgotten, so that nobody commits it later. Where the stream reads records
again, their rejects go before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity, offsets_digest
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_note import NO_CHECKPOINT, Calls, Noted
from streamlake.commit import recovery as marks
from streamlake.commit.findings import marks_lost, staged_gone
from streamlake.commit.history import History, marker_of
from streamlake.commit.lineage import Finding, Kind
from streamlake.commit.marker import JOB_ID, KEY_IDS, PROPERTY_PREFIX, Marker
from streamlake.commit.traces import holds, is_gone
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.lineage_check import common_checkpoint, lineage_findings
from streamlake.pipeline.recovery_plan import Plan, Step
from streamlake.pipeline.recovery_plan import named_checkpoint as _named
from streamlake.pipeline.recovery_plan import named_range as _range
from streamlake.pipeline.rejects_rewinding import rejects_after
from streamlake.spec.snapshot import Snapshot
from streamlake.table.table import Table


def without_table(directory: SparkDirectory, pipeline: str, rejects: Table | None = None) -> Plan:
    """The way out where there is no table any more: the directory goes back to before its first checkpoint, and the stream
    makes and fills a new one. Its note needs no change: before the first checkpoint it binds to no table."""
    text = (
        f"delete every entry of Spark's commit log and offset log in {directory.location}, so that Spark plans "
        f"{_named(NO_CHECKPOINT + 1)} anew from the source's beginning"
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
    """The state of one pipeline, and plans to put it right. `noted_table` is the table as the sink names it in its note,
    `rejects` the table of its rejects, if there is one.

    No driver of the pipeline may run: one that does is fenced as soon as a plan has changed the table.
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
        self._rejects = rejects
        self.branch = branch
        self.directory = directory
        self._noted_table = noted_table
        self.noted = directory.note(noted_table, branch)
        name = pipeline or f"{noted_table}:{directory.job_id}"
        self._given = name
        self.pipeline = name if self.noted is None else self.noted.pipelines.get(name, name)
        self.findings: tuple[Finding, ...] = lineage_findings(
            table, branch, self.pipeline, directory, self.noted, named=noted_table
        )
        self._history = History.of(table.metadata, branch, self.pipeline, directory.job_id)
        self._store = CommittableStore(table.io, table.locations, directory.job_id, branch)
        self._staged = self._store.pending()
        self._held, self._gone = self._known_by_files()
        if not self.findings and self._held:
            self.findings = (marks_lost(table.location),)
        elif not self.findings:
            self.findings = tuple(staged_gone(table.location, each) for each in self._gone)

    def adopt(self) -> Plan:
        """Keep the table and the directory, and agree that the table holds what the directory has committed."""
        at = self._adopted_checkpoint()
        offsets = () if at == NO_CHECKPOINT else self._offsets(at)
        identity = CheckpointIdentity(self.pipeline, self.directory.job_id, at, offsets, offsets)
        text = (
            f"commit an empty snapshot to branch '{self.branch}' that marks {_named(at)} of job {self.directory.job_id} as "
            f"the last one of pipeline '{self.pipeline}', so that {_named(at + 1)} is the next to be committed"
        )
        key_ids = self._key_ids()
        due = self._due()
        return Plan(
            (
                *self._forgetting(after=at, kept=due),
                Step(text, lambda: marks.adopt(self.table, identity, self._history, key_ids)),
                self._noting(at, due, passed=self.directory.last_completed),
            ),
            (*self._left_behind(), *self._not_there()),
        )

    def fork(self) -> Plan:
        """Make the directory's job a pipeline of its own; what is in the table stays and is another pipeline's.
        Raises InvalidOptionError while something is due."""
        done = self.directory.last_completed
        due = [each for each in (staged.identity.checkpoint_id for staged in self._due()) if each <= done]
        if due:
            raise InvalidOptionError(
                f"{_range(due)} of job {self.directory.job_id} are staged for {self.table.location} and not committed, and "
                "a fork leaves their rows out. Start the stream once as it was, under its old name, or adopt the directory"
            )
        steps = []
        job_id = self.directory.job_id
        if self._is_known(job_id):
            text = f"give {self.directory.location} a query id of its own: {job_id} has written this table already"
            steps.append(Step(text, self.directory.take_new_job_id))
        name = f"{self._given}-fork-{max(self.directory.last_completed, 0)}"
        while f"{PROPERTY_PREFIX}{name}" in self.table.properties:
            name += "x"
        pipelines = {**({} if self.noted is None else self.noted.pipelines), self._given: name}
        noted = Noted(
            self.table.uuid,
            committed=False,
            pipelines=pipelines,
            passed_id=done,
            calls=Calls.FUNCTION if self.noted is None else self.noted.calls,
            passed_digest=self._logged_digest(done),
        )
        text = (
            f"note in {self.directory.location} that its pipeline '{self._given}' is '{name}' from here on; "
            f"{_named(self.directory.last_completed + 1)} is the next to be committed, and rows that are in the table already "
            "are written again where the source still has them after it"
        )
        steps.append(Step(text, lambda: self.directory.write_note(noted, self._noted_table, self.branch)))
        return Plan(tuple(steps))

    def rewind(self, checkpoint_id: int) -> Plan:
        """Put directory and table back to a checkpoint. Raises InvalidOptionError when one of them cannot go there."""
        self._require_in_directory(checkpoint_id)
        marker, snapshot = self._table_at(checkpoint_id)
        gone = [number for number in self.directory.planned if number > checkpoint_id]
        steps = []
        if gone:
            text = (
                f"delete the entries of {_range(gone)} from Spark's commit log and offset log in "
                f"{self.directory.location}, so that Spark plans {_named(checkpoint_id + 1)} anew from the source"
            )
            steps.append(Step(text, lambda: self.directory.go_back_to(checkpoint_id)))
        kept = [staged for staged in self._due() if staged.identity.checkpoint_id <= checkpoint_id]
        steps += self._forgetting(after=checkpoint_id, kept=kept)
        at = NO_CHECKPOINT if marker is None else marker.checkpoint_id
        steps.append(self._noting(at, kept, done=checkpoint_id))
        steps += self._rejects_at(checkpoint_id)
        if marker is not None:
            steps.append(self._moving(marker, snapshot))
        return Plan(tuple(steps), self._undone(snapshot))

    def rollback(self) -> Plan:
        """Put the branch at the checkpoint that the directory is at. Raises InvalidOptionError when the table no longer has
        a snapshot that belongs to it."""
        found = self._newest_of_directory()
        if found is None:
            raise InvalidOptionError(
                f"{self.table.location} has no snapshot of a checkpoint that {self.directory.location} (job "
                f"{self.directory.job_id}, at {_named(self.directory.last_completed)}) has: it has expired, or was never "
                "there. Adopt the directory, or restore one that fits the table"
            )
        marker, snapshot = found
        floor = self._floor()
        if floor > marker.checkpoint_id:
            raise InvalidOptionError(
                f"the newest snapshot of {self.table.location} that belongs to {self.directory.location} is of checkpoint "
                f"{marker.checkpoint_id}, but the directory has committed checkpoint {floor}: rows in between would be "
                f"missing; {self._common(self.directory.last_completed + 1)}"
            )
        target = None if self._head_id() == snapshot.snapshot_id else snapshot
        kept = [staged for staged in self._due() if staged.identity.checkpoint_id > marker.checkpoint_id]
        if self._is_at(marker):
            target = None  # what other writers have added since stays
        return Plan(
            (
                *self._forgetting(after=marker.checkpoint_id, kept=kept),
                self._noting(marker.checkpoint_id, kept),
                *self._rejects_at(marker.checkpoint_id),
                self._moving(marker, target),
            ),
            self._undone(target),
        )

    def _rejects_at(self, checkpoint_id: int) -> list[Step]:
        offsets = () if checkpoint_id == NO_CHECKPOINT else self.directory.end_offsets(checkpoint_id)
        if offsets is None:
            return []
        at = CheckpointIdentity(self.pipeline, self.directory.job_id, checkpoint_id, (), offsets)
        return _rejects_rewound(self._rejects, at, self.directory)

    def _adopted_checkpoint(self) -> int:
        """The last checkpoint that need not be committed any more."""
        due = self._due()
        if due:
            return due[0].identity.checkpoint_id - 1
        seen = self._history.seen
        holds_planned = seen is not None and self._fits(seen) and seen.checkpoint_id
        known = max((*self._held, *self._gone), default=NO_CHECKPOINT)
        return max(self.directory.last_completed, holds_planned or NO_CHECKPOINT, known)

    def _due(self) -> list[Committable]:
        """What the job has staged for this table and not committed, and the directory does not plan any more or still has."""
        known = {*self._held, *self._gone}
        return [staged for staged in self._candidates() if staged.identity.checkpoint_id not in known]

    def _known_by_files(self) -> tuple[list[int], list[int]]:
        """Of what is staged, the checkpoints whose files are in a table without a mark of the job, and those whose files
        are nowhere."""
        held, gone = [], []
        for staged in self._candidates() if self._history.marker is None else ():
            if holds(self.table, self.branch, staged):
                held.append(staged.identity.checkpoint_id)
            elif is_gone(self.table, staged):
                gone.append(staged.identity.checkpoint_id)
        return held, gone

    def _candidates(self) -> list[Committable]:
        """What is due, unless the table holds it without a mark."""
        floor = self._floor()
        # Spark has finished a checkpoint that is not committed only where it was told so; then the note says which.
        told = NO_CHECKPOINT if self.noted is None or self.noted.staged_id is None else self.noted.staged_id
        completed = self.directory.last_completed
        return [
            staged
            for staged in self._staged
            if staged.table_uuid == self.table.uuid
            and floor < staged.identity.checkpoint_id <= self.directory.last_planned
            and (staged.identity.checkpoint_id > completed or staged.identity.checkpoint_id <= told)
            and self._logged_digest(staged.identity.checkpoint_id) == staged.identity.offsets_digest
        ]

    def _floor(self) -> int:
        """The newest checkpoint of the directory that is known to have been committed at some time."""
        known = [NO_CHECKPOINT]
        if self.noted is not None and self.noted.table_uuid == self.table.uuid:
            known.append(NO_CHECKPOINT if self.noted.checkpoint_id is None else self.noted.checkpoint_id)
        told = None if self._history.told is None else self._history.told.marker
        known += [
            marker.checkpoint_id
            for marker in (told, self._history.seen)
            if marker is not None and self._fits(marker)
        ]
        return max(known)

    def _fits(self, marker: Marker) -> bool:
        """Whether a checkpoint in the table is the directory's own of that id."""
        return self._logged_digest(marker.checkpoint_id) == marker.offsets_digest

    def _logged_digest(self, checkpoint_id: int) -> str | None:
        if checkpoint_id == NO_CHECKPOINT:
            return offsets_digest(())
        offsets = self.directory.end_offsets(checkpoint_id)
        return None if offsets is None else offsets_digest(offsets)

    def _offsets(self, checkpoint_id: int) -> tuple[str, ...]:
        offsets = self.directory.end_offsets(checkpoint_id)
        if offsets is None:
            raise InvalidOptionError(
                f"the offset log of {self.directory.location} does not have checkpoint {checkpoint_id}, so it cannot be "
                "marked in the table; restore the directory from a copy that has it"
            )
        return offsets

    def _require_in_directory(self, checkpoint_id: int) -> None:
        known = sorted({*self.directory.completed} & {*self.directory.planned})
        if checkpoint_id not in known and checkpoint_id != NO_CHECKPOINT:
            has = f"it has {known[0]} to {known[-1]}" if known else "it has none"
            raise InvalidOptionError(
                f"{self.directory.location} cannot go back to checkpoint {checkpoint_id}: {has} in both of Spark's logs"
            )

    def _table_at(self, checkpoint_id: int) -> tuple[Marker | None, Snapshot | None]:
        """The table's marker once it is at a checkpoint of the directory, and the snapshot that the branch has to move to
        (None: it stays). No marker: the table never held anything of the job."""
        history = self._history
        if history.named is not None and history.named.marker.job_id != self.directory.job_id:
            raise InvalidOptionError(
                f"pipeline '{self.pipeline}' of {self.table.location} belongs to job {history.named.marker.job_id}: adopt this "
                "directory, or fork it"
            )
        told = None if history.told is None else history.told.marker
        held = history.seen or (None if history.rolled_back else told)
        if checkpoint_id == NO_CHECKPOINT:
            if held is not None or told is not None:
                raise InvalidOptionError(
                    f"{self.table.location} holds checkpoints of job {self.directory.job_id}, so going back to before the first "
                    "one would write their rows twice: rewind to one of its checkpoints, or start into an empty table"
                )
            return None, None
        if held is None:
            raise InvalidOptionError(
                f"{self.table.location} holds no checkpoint of job {self.directory.job_id} that could be gone back to: adopt "
                "the directory as it is, or rewind to -1 for an empty table"
            )
        if held.checkpoint_id <= checkpoint_id:
            if min(self._floor(), checkpoint_id) > held.checkpoint_id:
                raise InvalidOptionError(
                    f"{self.table.location} is at checkpoint {held.checkpoint_id} and lacks rows of later ones: use "
                    f"--rewind-to={held.checkpoint_id}, or an earlier checkpoint"
                )
            return self._own(held), None
        for snapshot in self._ancestry():
            found = marker_of(snapshot, self.directory.job_id)
            if found is not None and found.checkpoint_id <= checkpoint_id:
                return self._own(found), snapshot
        raise InvalidOptionError(
            f"the snapshot of checkpoint {checkpoint_id} has expired from branch '{self.branch}' of {self.table.location}, so "
            "the table cannot go back to it; rewind to a later one"
        )

    def _own(self, marker: Marker) -> Marker:
        digest = self._logged_digest(marker.checkpoint_id)
        if digest is not None and digest != marker.offsets_digest:
            raise InvalidOptionError(
                f"checkpoint {marker.checkpoint_id} of {self.directory.location} ends at other source offsets than the one in "
                f"{self.table.location}: the two have gone different ways before it; {self._common(marker.checkpoint_id)}"
            )
        return marker

    def _common(self, before: int) -> str:
        job_id, logged = self.directory.job_id, self.directory.end_offsets
        found = common_checkpoint(self.table, self.branch, job_id, logged, before)
        return "adopt the directory, or fork it" if found is None else f"use --rewind-to={found}"

    def _newest_of_directory(self) -> tuple[Marker, Snapshot] | None:
        """The newest snapshot whose checkpoint is one of the directory's, on the branch first and then anywhere."""
        own = [snapshot.snapshot_id for snapshot in self._ancestry()]
        found = [
            (marker, snapshot)
            for snapshot in self.table.metadata.snapshots
            if (marker := marker_of(snapshot, self.directory.job_id)) is not None
            and marker.checkpoint_id <= self.directory.last_planned
            and self._fits(marker)
        ]
        return max(
            found,
            key=lambda each: (
                each[0].checkpoint_id,
                each[1].snapshot_id in own,
                each[1].sequence_number,
            ),
            default=None,
        )

    def _is_at(self, marker: Marker) -> bool:
        seen = self._history.seen
        return seen is not None and seen.snapshot_id == marker.snapshot_id

    def _ancestry(self) -> list[Snapshot]:
        return list(self.table.metadata.ancestors(self._head_id()))

    def _head_id(self) -> int | None:
        head = self.table.metadata.head(self.branch)
        return None if head is None else head.snapshot_id

    def _is_known(self, job_id: str) -> bool:
        told = any(job_id in text for name, text in self.table.properties.items() if "pipeline" in name)
        made = any(each.summary.get(JOB_ID) == job_id for each in self.table.metadata.snapshots)
        return told or made or bool(self._staged)

    def _key_ids(self) -> tuple[int, ...]:
        for told in (self._history.named, self._history.told):
            if told is not None and told.key_ids:
                return told.key_ids
        for snapshot in self._ancestry():
            if snapshot.summary.get(JOB_ID) == self.directory.job_id and KEY_IDS in snapshot.summary:
                return tuple(int(part) for part in snapshot.summary[KEY_IDS].split(","))
        return ()

    def _moving(self, marker: Marker, snapshot: Snapshot | None) -> Step:
        mark = f"set the property of pipeline '{self.pipeline}' to {_named(marker.checkpoint_id)} of job {marker.job_id}"
        if snapshot is not None:
            mark = (
                f"move branch '{self.branch}' from snapshot {self._head_id()} to snapshot {snapshot.snapshot_id} "
                f"({_named(marker.checkpoint_id)}), and {mark}, in one commit"
            )
        key_ids, target = self._key_ids(), None if snapshot is None else snapshot.snapshot_id
        return Step(mark, lambda: marks.move_branch(self.table, target, marker, self._history, key_ids))

    def _forgetting(self, *, after: int, kept: list[Committable]) -> list[Step]:
        """Forget what is staged and would be committed by mistake."""
        wanted = {staged.identity.checkpoint_id for staged in kept}
        gone = [
            staged.identity
            for staged in self._staged
            if staged.identity.checkpoint_id > after and staged.identity.checkpoint_id not in wanted
        ]
        if not gone:
            return []
        numbers = _range([identity.checkpoint_id for identity in gone])
        text = f"forget what is staged for {numbers} of job {self.directory.job_id}, so that nobody commits it again"

        def forget() -> None:
            for identity in gone:
                self._store.remove(identity)

        return [Step(text, forget)]

    def _noting(
        self,
        checkpoint_id: int,
        kept: Sequence[Committable] = (),
        *,
        done: int | None = None,
        passed: int | None = None,
    ) -> Step:
        """Note that the table holds a checkpoint. `done`: what the directory has done then (None: as it is); `passed`: up to where
        what is not in the table stays out of it (None: as noted)."""
        staged = [each.identity.checkpoint_id for each in kept]
        noted = self.noted or Noted(self.table.uuid, committed=False, calls=Calls.FUNCTION)
        lost = self._lost(checkpoint_id, staged) if passed is None else []
        if lost or (passed is None and noted.passed_id is not None):
            done = self.directory.last_completed if done is None else done
            passed = min(noted.covered(self._logged_digest), done, *(each - 1 for each in lost))
        noted = replace(
            noted,
            table_uuid=self.table.uuid,
            committed=checkpoint_id != NO_CHECKPOINT,
            checkpoint_id=None if checkpoint_id == NO_CHECKPOINT else checkpoint_id,
            staged_id=max((each for each in staged if each <= self.directory.last_completed), default=None),
            passed_id=passed,
            staged_digest=None,
            passed_digest=None if passed is None else self._logged_digest(passed),
        )
        text = f"note in {self.directory.location} that the table (uuid {self.table.uuid}) holds {_named(checkpoint_id)}"
        return Step(text, lambda: self.directory.write_note(noted, self._noted_table, self.branch))

    def _lost(self, held: int, kept: Sequence[int]) -> list[int]:
        """Checkpoints above `held` that Spark does not run again as they were staged, and that do not stay staged."""
        told = None if self.noted is None else self.noted.staged_id
        known = [staged.identity.checkpoint_id for staged in self._staged]
        ahead = [] if told is None else [told, *(each for each in known if each < told)]
        return [each for each in ahead if each > held and each not in kept]

    def _undone(self, target: Snapshot | None) -> tuple[str, ...]:
        """Commits of other writers that a move of the branch takes back."""
        if target is None:
            return ()
        above = []
        for snapshot in self._ancestry():
            if snapshot.snapshot_id == target.snapshot_id:
                break
            above.append(snapshot)
        others = [each for each in above if each.summary.get(JOB_ID) != self.directory.job_id]
        if not others:
            return ()
        listed = ", ".join(str(each.snapshot_id) for each in others[:5]) + (
            ", ..." if len(others) > 5 else ""
        )
        return (
            f"{len(others)} snapshots of other writers are undone as well and must be made again: {listed}",
        )

    def _left_behind(self) -> tuple[str, ...]:
        if not any(finding.kind is Kind.OTHER_JOB for finding in self.findings):
            return ()
        named = self._history.named
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
        if not self._gone:
            return ()
        return (
            f"files of {_range(self._gone)} are no longer there: it is taken to have been "
            "committed, compacted by somebody and expired. Where its files were deleted before that, its rows are lost to the "
            "table, and the stream has to write them again from the source",
        )
