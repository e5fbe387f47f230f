"""The plan of a replay: written down before the replay changes anything.

It says which records go to the table, and what is wrong with those that fail again. A record is identified by
where it came from and when it was rejected, not by its file, so a plan stays valid whatever happens to the
files. Plans are kept where the rejects table keeps its staged checkpoints; a replay that finds the plan of
one that died continues from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.checkpoint.committable import Committable, committable_to_bytes
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.staged_extra import Extra, StagedReplay
from streamlake.checkpoint.store import CommittableStore
from streamlake.errors import CommitConflictError, DataInvalidError
from streamlake.failpoints import failpoint
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.table import Table

PLACE_COLUMNS = ("topic", "partition", "offset", "rejected_at", "checkpoint_id", "pipeline")
_MODE = "replay"


@dataclass(frozen=True)
class ReplayPlan:
    """One replay's plan.

    `done` are the places of the records that the table has once the replay with `identity` is in it. `failed`
    are those that failed again: place -> (error class, message).
    """

    identity: CheckpointIdentity
    done: tuple[str, ...]
    failed: Mapping[str, tuple[str, str]] = field(default_factory=dict)


class ReplayPlans:
    """The plans of one job, beside the rejects table's metadata."""

    def __init__(self, rejects: Table, job_id: str) -> None:
        self._rejects = rejects
        self._job_id = job_id
        self._store = CommittableStore(rejects.io, rejects.locations, job_id)

    def write(self, plan: ReplayPlan) -> None:
        """Make a plan durable.

        Raises CommitConflictError when a concurrent replay has written one with its number.
        """
        extra = Extra(replay=StagedReplay(plan.done, plan.failed))
        committable = Committable(
            plan.identity, self._rejects.uuid, MAIN_BRANCH, _MODE, (), 0, 0, 0, extra=extra
        )
        try:
            self._rejects.io.create_exclusive(self.path(plan), committable_to_bytes(committable))
        except FileExistsError as error:
            raise CommitConflictError(
                f"another replay of {self._rejects.name} is running, or was interrupted just now: nothing "
                "was replayed; run it again"
            ) from error
        failpoint("committable-recorded")

    def path(self, plan: ReplayPlan) -> str:
        """Path of a plan."""
        return self._rejects.locations.committable(self._job_id, plan.identity.checkpoint_id)

    def pending(self) -> list[ReplayPlan]:
        """The plans that may not be carried out yet, oldest first. Raises DataInvalidError."""
        return [_plan(each) for each in self._store.pending() if each.mode == _MODE]

    def remove(self, plan: ReplayPlan) -> None:
        """Remove a plan that is carried out, or never will be."""
        self._store.remove(plan.identity)


def planned_places(staged: Iterable[Committable]) -> set[str]:
    """The places that the plans among staged checkpoints bring into the table. Raises DataInvalidError."""
    return {place for each in staged if each.mode == _MODE for place in _plan(each).done}


def places(rows: pa.Table) -> pa.Array:
    """(n,) text: the places of rows of a rejects table that has PLACE_COLUMNS."""
    columns = [
        rows.column(name).cast(pa.int64()) if name == "rejected_at" else rows.column(name)
        for name in PLACE_COLUMNS
    ]
    texts = [column.cast(pa.string()) for column in columns]
    found = pc.binary_join_element_wise(*texts, "/")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _plan(committable: Committable) -> ReplayPlan:
    replay = committable.extra.replay
    if replay is None:
        raise DataInvalidError(
            f"the plan of the replay {committable.identity} is damaged: it names no records; move it away if "
            "the table holds what it replayed, and delete these records from the rejects table"
        )
    return ReplayPlan(committable.identity, replay.done, replay.failed)
