"""The lineage of a key index: whether it belongs to the table's past, even if its snapshots expired.

Place in the flow: before an index is brought to a branch's head. Expired snapshots cut the history short.
Then the parent's id proves that nothing is missing in between; otherwise sequence numbers, and the property
that each checkpoint sets, identify an index whose row positions may belong to a past that the table was set
back from. Invariant: of such an index only the sequence values are used, never the row positions; and losing
an index is logged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from streamlake.commit.marker import properties_on_branch
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class NamedState:
    """The state file at `path` is the key index of the snapshot with this sequence number, over the key with
    these field ids.
    """

    path: str
    sequence_number: int
    key_ids: tuple[int, ...]


def named_states_of(metadata: TableMetadata, branch: str) -> list[NamedState]:
    """The states that the properties of a branch's pipelines name, newest first."""
    found = [
        NamedState(entry.index_state, entry.index_number, entry.key_ids)
        for entry in properties_on_branch(metadata, branch)
        if entry.index_state is not None and entry.index_number is not None
    ]
    return sorted(found, key=lambda each: -each.sequence_number)


def is_past(metadata: TableMetadata, head: Snapshot | None, snapshot_id: int | None) -> bool:
    """Whether a snapshot is certainly the head or an ancestor of it."""
    for each in metadata.ancestors(None if head is None else head.snapshot_id):
        if snapshot_id in (each.snapshot_id, each.parent_snapshot_id):
            return snapshot_id is not None
    return False


def is_cut_after(metadata: TableMetadata, head: Snapshot | None, sequence_number: int) -> bool:
    """Whether the snapshot with a sequence number may be an expired ancestor of the head."""
    past = list(metadata.ancestors(None if head is None else head.snapshot_id))
    return (
        bool(past) and past[-1].parent_snapshot_id is not None and past[-1].sequence_number > sequence_number
    )


def warn_built_anew(location: str, reason: object, *, is_ordered: bool) -> None:
    """Warn that an index is lost; with `is_ordered` also the sequence values that identified late changes."""
    forgotten = (
        "; what only the index knew is forgotten: places in the log, and that keys are deleted. An older "
        "change that comes again is not late then"
    )
    _LOG.warning(
        "the key index of %s is built anew from the table: %s%s",
        location,
        reason,
        forgotten if is_ordered else "",
    )
