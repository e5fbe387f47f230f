"""The lease of a table's maintenance: which pipeline maintains it, and until when.

A table property, so that pipelines which share nothing but the table agree. It is taken by a swap of the
metadata that sees who holds it, when a run begins and less than half of its time is left: no checkpoint
costs a commit for it. Invariant: it saves double work and nothing else. Whoever works without it, or loses
it in the middle of an action, harms nothing, because every action's own commit is validated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from streamlake import clock
from streamlake.options import Property
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.metadata_update import commit_metadata

LEASE = "streamlake.maintenance-lease"
PROPERTIES = (
    Property(
        LEASE,
        "",
        "Which pipeline maintains the table and until when; written by streamlake. Remove it to let another "
        "pipeline begin at once.",
    ),
)


_LONGEST_MS = 24 * 3600 * 1000
"""A lease that ends later is that of a clock which was wrong, and binds nobody."""


@dataclass(frozen=True)
class Lease:
    """Who maintains a table, and until when (epoch milliseconds)."""

    holder: str
    until_ms: int


class _HeldError(Exception):
    """Raised inside of a commit attempt when somebody else has the lease."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.holder)
        self.lease = lease


def lease_of(properties: Mapping[str, str]) -> Lease | None:
    """The lease in a table's properties; None for none, and for a damaged one, which binds nobody."""
    try:
        found = json.loads(properties.get(LEASE, ""))
        return Lease(str(found["holder"]), int(found["until_ms"]))
    except (ValueError, TypeError, KeyError):
        return None


def take_lease(table: Table, holder: str, seconds: int) -> Lease | None:
    """Take or renew the lease for `holder`. Returns None where that is done, else the lease of another one.

    Raises the errors of a commit.
    """
    now_ms = clock.now_ms()
    wanted = Lease(holder, now_ms + seconds * 1000)

    def change(base: TableMetadata) -> TableMetadata:
        held = lease_of(base.properties)
        if held is not None and held.holder != holder and now_ms < held.until_ms <= now_ms + _LONGEST_MS:
            raise _HeldError(held)
        if held is not None and held.holder == holder and held.until_ms - now_ms > seconds * 500:
            return base
        return with_properties(base, {LEASE: json.dumps(asdict(wanted), sort_keys=True)})

    table.refresh()
    try:
        commit_metadata(table, change)
    except _HeldError as other:
        return other.lease
    return None
