"""Commits changes of the metadata alone: a function of the base, with the same retries as a snapshot.

`UpdateProperties` and `ManageRefs` are built on it. Invariant: when the change leaves the base
as it is, nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable

from streamlake.errors import CommitStateUnknownError
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.options import RetryOptions
from streamlake.table.table import Table
from streamlake.table.updates.retries import found_after_unknown_state, retry_on_conflict


def commit_metadata(table: Table, change: Callable[[TableMetadata], TableMetadata]) -> TableMetadata:
    """Commit `change(base)`, on the newest base of each attempt. `change` is pure and may raise to refuse.

    Raises CommitConflictError or CommitStateUnknownError. After a lost response, the change counts as
    committed when applying it to the table's current metadata changes nothing.
    """
    operations = table.operations

    def attempt() -> TableMetadata:
        with operations.commit_turn():
            base = operations.refresh()
            new = change(base)
            return base if new is base else operations.commit(base, new)

    # The properties after the change: a change that repairs an invalid property must not fail on it.
    properties = change(operations.current()).properties
    try:
        return retry_on_conflict(RetryOptions.for_commit(properties), attempt)
    except CommitStateUnknownError:
        options = RetryOptions.for_status_check(properties)
        found = found_after_unknown_state(operations, options, lambda metadata: change(metadata) is metadata)
        if found is None:
            raise
        return found
