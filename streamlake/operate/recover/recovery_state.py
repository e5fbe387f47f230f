"""The state of a pipeline before recovery: what its table and its checkpoint directory record.

It is read once, when `streamlake recover` begins, and `recovery` makes its plans from it. It runs without
Spark. Invariant: a checkpoint is due if the job has staged it for this table, the table does not hold it, and
this directory still has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import offsets_digest
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.findings import markers_lost, staged_gone, torn_log
from streamlake.commit.history import History, marker_of
from streamlake.commit.lineage import Finding
from streamlake.commit.marker import JOB_ID, KEY_IDS, Marker, properties_on_branch
from streamlake.commit.traces import holds, is_gone
from streamlake.commit.unnamed import is_unnamed
from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion
from streamlake.pipeline.runs.lineage.lineage_check import common_checkpoint, lineage_findings
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table


class RecoveryState:
    """The state of one pipeline.

    `named` is the table's name in the sink's note, `given` the pipeline as the caller names it, `pipeline` as
    the directory does. `held` and `gone` are staged checkpoints whose files are in a table without a commit
    marker of the job, or nowhere.
    """

    def __init__(
        self, table: Table, branch: str, pipeline: str | None, directory: SparkDirectory, named: str
    ) -> None:
        self.table = table
        self.branch = branch
        self.directory = directory
        self.named = named
        self.noted = directory.note(named, branch)
        name = pipeline or f"{named}:{directory.job_id}"
        self.given = name
        self.pipeline = name if self.noted is None else self.noted.pipelines.get(name, name)
        self.findings: tuple[Finding, ...] = lineage_findings(
            table, branch, self.pipeline, directory, self.noted, named=named
        )
        self.history = History.of(table.metadata, branch, self.pipeline, directory.job_id)
        self.store = CommittableStore(table.io, table.locations, directory.job_id, branch)
        self.staged = self.store.pending()
        self.held, self.gone = self._known_by_files()
        if not self.findings and self.held:
            self.findings = (markers_lost(table.location),)
        elif not self.findings:
            self.findings = tuple(staged_gone(table.location, each) for each in self.gone)
        torn = directory.torn
        if torn:
            self.findings = (torn_log(directory.location, torn), *self.findings)

    def require_known_pipeline(self) -> None:
        """Raise InvalidOptionError where the table knows pipelines, and the one that is asked for is none."""
        recorded = properties_on_branch(self.table.metadata, self.branch)
        job_id = self.directory.job_id
        own = sorted({each.pipeline for each in recorded if each.marker.job_id == job_id})
        named = sorted(
            {each.pipeline for each in recorded if not is_unnamed(each.pipeline, each.marker.job_id)}
        )
        if any(each.pipeline == self.pipeline for each in recorded):
            return
        if not own:
            renamed = self.pipeline != self.given
            is_new = self.noted is not None and not self.noted.committed
            if self.findings or renamed or is_new or not named:
                return
        where = f"branch '{self.branch}' of {self.table.location}"
        if own:
            raise InvalidOptionError(
                f"{self.directory.location} is the directory of {_quoted(own)} in {where}, not of "
                f"{_quoted([self.pipeline])}; {_option(own[0], job_id)}"
            )
        if is_unnamed(self.pipeline, job_id):
            raise InvalidOptionError(
                f"--pipeline is missing: {where} has rows of {_quoted(named)}, and none of a stream without "
                "a name from this directory; say which one with --pipeline"
            )
        near = suggestion(self.pipeline, named)
        hint = f"did you mean '{near}'?" if near else f"it knows {_quoted(named)}"
        raise InvalidOptionError(f"{where} knows no pipeline '{self.pipeline}'; {hint}")

    def adopted_checkpoint(self) -> int:
        """The last checkpoint that no longer needs to be committed."""
        due = self.due()
        if due:
            return due[0].identity.checkpoint_id - 1
        seen = self.history.seen
        holds_planned = seen is not None and self.fits(seen) and seen.checkpoint_id
        known = max((*self.held, *self.gone), default=NO_CHECKPOINT)
        return max(self.directory.last_completed, holds_planned or NO_CHECKPOINT, known)

    def due(self) -> list[Committable]:
        """The checkpoints that are due: staged for this table, not committed, and still in the directory."""
        known = {*self.held, *self.gone}
        return [staged for staged in self._candidates() if staged.identity.checkpoint_id not in known]

    def _known_by_files(self) -> tuple[list[int], list[int]]:
        """Staged checkpoints with files in a table without a commit marker, and those with lost files.

        The marker would be that of the job.
        """
        held, gone = [], []
        for staged in self._candidates() if self.history.marker is None else ():
            if holds(self.table, self.branch, staged):
                held.append(staged.identity.checkpoint_id)
            elif is_gone(self.table, staged):
                gone.append(staged.identity.checkpoint_id)
        return held, gone

    def _candidates(self) -> list[Committable]:
        """The checkpoints that are due, unless the table holds their files without a commit marker."""
        floor = self.floor()
        # Spark has finished a checkpoint that is not committed only where the sink let it; then the note says
        # which.
        recorded = (
            NO_CHECKPOINT if self.noted is None or self.noted.staged_id is None else self.noted.staged_id
        )
        completed = self.directory.last_completed
        return [
            staged
            for staged in self.staged
            if staged.table_uuid == self.table.uuid
            and floor < staged.identity.checkpoint_id <= self.directory.last_planned
            and (staged.identity.checkpoint_id > completed or staged.identity.checkpoint_id <= recorded)
            and self.logged_digest(staged.identity.checkpoint_id) == staged.identity.offsets_digest
        ]

    def floor(self) -> int:
        """The newest checkpoint of the directory that is known to have been committed at some time."""
        known = [NO_CHECKPOINT]
        if self.noted is not None and self.noted.table_uuid == self.table.uuid:
            known.append(NO_CHECKPOINT if self.noted.checkpoint_id is None else self.noted.checkpoint_id)
        recorded = None if self.history.recorded is None else self.history.recorded.marker
        known += [
            marker.checkpoint_id
            for marker in (recorded, self.history.seen)
            if marker is not None and self.fits(marker)
        ]
        return max(known)

    def fits(self, marker: Marker) -> bool:
        """Whether a checkpoint in the table has the offsets that the directory has under its id."""
        return self.logged_digest(marker.checkpoint_id) == marker.offsets_digest

    def logged_digest(self, checkpoint_id: int) -> str | None:
        """The digest of a checkpoint's end offsets by the directory's log; None where the log lacks it."""
        if checkpoint_id == NO_CHECKPOINT:
            return offsets_digest(())
        offsets = self.directory.end_offsets(checkpoint_id)
        return None if offsets is None else offsets_digest(offsets)

    def offsets(self, checkpoint_id: int) -> tuple[str, ...]:
        """The offsets that a checkpoint ends at.

        Raises InvalidOptionError where the directory's offset log lacks it.
        """
        offsets = self.directory.end_offsets(checkpoint_id)
        if offsets is None:
            raise InvalidOptionError(
                f"the offset log of {self.directory.location} does not have checkpoint {checkpoint_id}, so "
                "it cannot be marked in the table; restore the directory from a copy that has it"
            )
        return offsets

    def require_in_directory(self, checkpoint_id: int) -> None:
        """Raise InvalidOptionError unless the directory can go back to a checkpoint, or before the first."""
        known = sorted({*self.directory.completed} & {*self.directory.planned})
        if checkpoint_id not in known and checkpoint_id != NO_CHECKPOINT:
            has = f"it has {known[0]} to {known[-1]}" if known else "it has none"
            raise InvalidOptionError(
                f"{self.directory.location} cannot go back to checkpoint {checkpoint_id}: {has} in both of "
                "Spark's logs"
            )

    def table_at(self, checkpoint_id: int) -> tuple[Marker | None, Snapshot | None]:
        """The table's marker at a checkpoint of the directory, and the snapshot that the branch moves to.

        The snapshot is None where the branch stays; the marker is None where the table never held anything of
        the job. Raises InvalidOptionError where the table cannot go there.
        """
        history = self.history
        if history.named is not None and history.named.marker.job_id != self.directory.job_id:
            raise InvalidOptionError(
                f"pipeline '{self.pipeline}' of {self.table.location} belongs to job "
                f"{history.named.marker.job_id}: adopt this directory, or fork it"
            )
        recorded = None if history.recorded is None else history.recorded.marker
        held = history.seen or (None if history.rolled_back else recorded)
        if checkpoint_id == NO_CHECKPOINT:
            if held is not None or recorded is not None:
                raise InvalidOptionError(
                    f"{self.table.location} holds checkpoints of job {self.directory.job_id}, so going back "
                    "to before the first one would write their rows twice: rewind to one of its checkpoints, "
                    "or start into an empty table"
                )
            return None, None
        if held is None:
            raise InvalidOptionError(
                f"{self.table.location} holds no checkpoint of job {self.directory.job_id} that the "
                "directory can go back to: adopt the directory as it is, or rewind to -1 for an empty table"
            )
        if held.checkpoint_id <= checkpoint_id:
            if min(self.floor(), checkpoint_id) > held.checkpoint_id:
                raise InvalidOptionError(
                    f"{self.table.location} is at checkpoint {held.checkpoint_id} and lacks rows of later "
                    f"ones: use --rewind-to={held.checkpoint_id}, or an earlier checkpoint"
                )
            return self._own(held), None
        for snapshot in self.ancestry():
            found = marker_of(snapshot, self.directory.job_id)
            if found is not None and found.checkpoint_id <= checkpoint_id:
                return self._own(found), snapshot
        raise InvalidOptionError(
            f"the snapshot of checkpoint {checkpoint_id} has expired from branch '{self.branch}' of "
            f"{self.table.location}, so the table cannot go back to it; rewind to a later one"
        )

    def _own(self, marker: Marker) -> Marker:
        digest = self.logged_digest(marker.checkpoint_id)
        if digest is not None and digest != marker.offsets_digest:
            raise InvalidOptionError(
                f"checkpoint {marker.checkpoint_id} of {self.directory.location} ends at other source "
                f"offsets than the one in {self.table.location}: the two diverged before it; "
                f"{self.common(marker.checkpoint_id)}"
            )
        return marker

    def common(self, before: int) -> str:
        """Advice for messages: go back to the last common checkpoint below `before`, or adopt or fork."""
        job_id, logged = self.directory.job_id, self.directory.end_offsets
        found = common_checkpoint(self.table, self.branch, job_id, logged, before)
        return "adopt the directory, or fork it" if found is None else f"use --rewind-to={found}"

    def newest_of_directory(self) -> tuple[Marker, Snapshot] | None:
        """The newest snapshot of one of the directory's checkpoints, with its marker; None for none.

        Snapshots of the branch come first.
        """
        own = [snapshot.snapshot_id for snapshot in self.ancestry()]
        found = [
            (marker, snapshot)
            for snapshot in self.table.metadata.snapshots
            if (marker := marker_of(snapshot, self.directory.job_id)) is not None
            and marker.checkpoint_id <= self.directory.last_planned
            and self.fits(marker)
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

    def is_at(self, marker: Marker) -> bool:
        """Whether this marker is the newest one of the job in the branch's ancestry."""
        seen = self.history.seen
        return seen is not None and seen.snapshot_id == marker.snapshot_id

    def ancestry(self) -> list[Snapshot]:
        """The snapshots of the branch, newest first."""
        return list(self.table.metadata.ancestors(self.head_id()))

    def head_id(self) -> int | None:
        """The snapshot id of the branch's head; None for an empty branch."""
        head = self.table.metadata.head(self.branch)
        return None if head is None else head.snapshot_id

    def is_known(self, job_id: str) -> bool:
        """Whether a job has left a property, a snapshot or a staged checkpoint in the table."""
        recorded = any(job_id in text for name, text in self.table.properties.items() if "pipeline" in name)
        made = any(each.summary.get(JOB_ID) == job_id for each in self.table.metadata.snapshots)
        return recorded or made or bool(self.staged)

    def key_ids(self) -> tuple[int, ...]:
        """The field ids of the key by which the pipeline replaces rows; () where it replaces none."""
        for recorded in (self.history.named, self.history.recorded):
            if recorded is not None and recorded.key_ids:
                return recorded.key_ids
        for snapshot in self.ancestry():
            if snapshot.summary.get(JOB_ID) == self.directory.job_id and KEY_IDS in snapshot.summary:
                return tuple(int(part) for part in snapshot.summary[KEY_IDS].split(","))
        return ()

    def lost(self, held: int, kept: Sequence[int]) -> list[int]:
        """Checkpoints above `held` that Spark considers done, while they are only staged and not `kept`."""
        recorded = None if self.noted is None else self.noted.staged_id
        known = [staged.identity.checkpoint_id for staged in self.staged]
        ahead = [] if recorded is None else [recorded, *(each for each in known if each < recorded)]
        return sorted({each for each in ahead if each > held and each not in kept})


def _quoted(pipelines: Sequence[str]) -> str:
    return f"pipeline{'' if len(pipelines) == 1 else 's'} {', '.join(map(repr, pipelines))}"


def _option(pipeline: str, job_id: str) -> str:
    """The option that names a pipeline on the command line."""
    return "leave --pipeline away" if is_unnamed(pipeline, job_id) else f"give --pipeline {pipeline}"
