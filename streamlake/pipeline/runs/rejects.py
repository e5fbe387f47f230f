"""The protocol between a table's run and its rejects; `rejects_run` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.decode.rejected_records import RejectStamp
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.runs.upsert_options import unknown_value
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget

FAIL, REJECT = "fail", "reject"
POLICIES = (FAIL, REJECT)
"""What happens to records that cannot become rows: the stream stops at the first, or they go to the rejects
table."""
REJECTED_RECORDS = "streamlake.rejected-records"
"""In the summary of a snapshot of the table itself: how many records of its checkpoint went to the
rejects."""


class Rejects(Protocol):
    """The rejects of one table in one run of a query. `most`: the limit per checkpoint (None: no limit)."""

    most: int | None

    def target(self, identity: CheckpointIdentity) -> WriteTarget | None:
        """What tasks write rejects for; None while there is no rejects table."""
        ...

    def create(self) -> None:
        """Create the rejects table, because a task has found a record for it."""
        ...

    def stamp(self, identity: CheckpointIdentity) -> RejectStamp:
        """The columns that all rejects of a checkpoint have in common, the same in all of its tasks."""
        ...

    def take(self, identity: CheckpointIdentity, results: Sequence[WriteResult]) -> None:
        """Take over the files of rejects that the tasks of a checkpoint have written. Raises
        TooManyRejectsError.
        """
        ...

    def discard(self, results: Sequence[WriteResult]) -> None:
        """Remove files of rejects that were never handed over."""
        ...

    def stage(self, identity: CheckpointIdentity) -> int:
        """Make the rejects of a checkpoint durable, before the table's own part is; returns their number."""
        ...

    def commit(self, identity: CheckpointIdentity) -> None:
        """Commit what is staged for a checkpoint whose own part the table has."""
        ...

    def recover(self, held: int | None) -> None:
        """Commit what an earlier driver staged up to checkpoint `held`, the table's last; drop the rest."""
        ...


def require_policy(on_error: str, max_rejects: int | None) -> None:
    """Raises InvalidOptionError for an unknown policy, and for a limit that has no meaning with it."""
    if on_error not in POLICIES:
        raise unknown_value("on_error", on_error, POLICIES)
    if max_rejects is None:
        return
    if on_error != REJECT:
        raise InvalidOptionError(
            f"max_rejects is {max_rejects}, but on_error='{on_error}' stops at the first record; set "
            f"on_error='{REJECT}'"
        )
    if max_rejects < 1:
        raise InvalidOptionError(
            f"max_rejects is {max_rejects}; it is at least 1, and on_error='{FAIL}' allows none"
        )


def require_records(on_error: str) -> None:
    """Raises InvalidOptionError for policy "reject" with a DataFrame, which has no records to keep."""
    if on_error == REJECT:
        raise InvalidOptionError(
            f"on_error='{REJECT}' keeps records of a KafkaSource; a DataFrame has none: what it cannot read "
            "is up to the reader's own options, such as mode and columnNameOfCorruptRecord"
        )
