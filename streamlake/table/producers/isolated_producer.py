"""The common base of operations that remove something: which commits of others they check, how strictly.

Base of overwrites, partition replacements and row deltas. Their `validate` checks with `validation.History`
what was committed after `validate_from_snapshot`. Invariant: without one of the validations, an operation
applies to whatever version is newest.
"""

from __future__ import annotations

from typing import TypeVar

from streamlake.errors import InvalidOptionError
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.producers.snapshot_producer import SnapshotProducer
from streamlake.table.table import Table

ISOLATION_LEVELS = ("serializable", "snapshot")

Producer = TypeVar("Producer", bound="IsolatedProducer")


class IsolatedProducer(SnapshotProducer):
    """Collects which conflicts are refused."""

    def __init__(self, table: Table, branch: str = MAIN_BRANCH) -> None:
        super().__init__(table, branch)
        self._start_id: int | None = None
        self._refuse_data = False
        self._refuse_deletes = False

    def validate_from_snapshot(self: Producer, snapshot_id: int | None) -> Producer:
        """Set the snapshot that the change was computed from; commits after it are validated.

        None: an empty table.
        """
        self._start_id = snapshot_id
        return self

    def isolation(self: Producer, level: str, from_snapshot_id: int | None) -> Producer:
        """Set the isolation level: `serializable` or `snapshot`.

        `serializable` is as if no other writer had run meanwhile; `snapshot` loses no deletes. Raises
        InvalidOptionError for another level.
        """
        if level not in ISOLATION_LEVELS:
            raise InvalidOptionError(
                f"unknown isolation level {level!r}; choose one of {', '.join(ISOLATION_LEVELS)}"
            )
        self._refuse_deletes = True
        self._refuse_data = self._refuse_data or level == "serializable"
        return self.validate_from_snapshot(from_snapshot_id)
