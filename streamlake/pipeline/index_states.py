"""Which states of the key index a table names: in the summaries of its snapshots, and in a property.

A commit names its state in its snapshot's summary. A snapshot cannot be changed later, so an index that was built anew
for one is named by a table property, with the snapshot's id. Invariant: a state counts only where the walk from a
branch's head meets its snapshot; so after a rollback nobody is told of an index that knows too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from streamlake.commit.marker import INDEX_STATE, KEY_IDS, SEQUENCE_IDS
from streamlake.spec.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.table_metadata import TableMetadata
from streamlake.table.metadata_changes import branch_head

PROPERTY_PREFIX = "streamlake.index-state."


@dataclass(frozen=True)
class NamedState:
    """The state file at `path` is the key index of `snapshot`. `columns` tells indexes over different columns apart:
    field ids of the key and of `sequence_by`, "" where the table does not say. `is_rebuilt`: a property names it."""

    snapshot: Snapshot
    path: str
    columns: str
    is_rebuilt: bool = False


def columns_text(key_ids: tuple[int, ...], sequence_ids: tuple[int, ...]) -> str:
    """The field ids of an index as NamedState has them."""
    return f"{_joined(key_ids)}/{_joined(sequence_ids)}"


def named_states(metadata: TableMetadata, branch: str, down_to: int | None = None) -> Iterator[NamedState]:
    """The states of a branch's ancestry, newest snapshot first, for one snapshot the rebuilt one first; with
    `down_to` those of snapshots that are newer than the one of this id."""
    head = branch_head(metadata, branch)
    snapshot_id, rebuilt, columns = _rebuilt(metadata, branch)
    for snapshot in metadata.ancestors(None if head is None else head.snapshot_id):
        if snapshot.snapshot_id == down_to:
            return
        if snapshot.snapshot_id == snapshot_id:
            yield NamedState(snapshot, rebuilt, columns, is_rebuilt=True)
        path = snapshot.summary.get(INDEX_STATE)
        if path is not None:
            key, sequence = (snapshot.summary.get(name, "") for name in (KEY_IDS, SEQUENCE_IDS))
            yield NamedState(snapshot, path, f"{key}/{sequence}" if key else "")


def named_columns(state: NamedState) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The field ids of the key and of `sequence_by` that a state is over; None where the table does not say."""
    key, _, sequence = state.columns.partition("/")
    return (_ids(key), _ids(sequence)) if key else None


def branches(metadata: TableMetadata) -> list[str]:
    """Every branch that has a snapshot."""
    others = [name for name, ref in metadata.refs.items() if ref.type == "branch"]
    return list(dict.fromkeys([MAIN_BRANCH, *others]))


def rebuilt_property(
    branch: str, snapshot_id: int, path: str, key_ids: tuple[int, ...], sequence_ids: tuple[int, ...]
) -> tuple[str, str]:
    """Name and value of the table property that names a rebuilt state."""
    value = {"snapshot-id": snapshot_id, "path": path, "columns": columns_text(key_ids, sequence_ids)}
    return property_name(branch), json.dumps(value)


def property_name(branch: str) -> str:
    """The property with the rebuilt index of a branch."""
    return f"{PROPERTY_PREFIX}{branch}"


def _rebuilt(metadata: TableMetadata, branch: str) -> tuple[int | None, str, str]:
    """Snapshot id, path and columns that the property tells; what cannot be read counts for nothing."""
    try:
        value = json.loads(metadata.properties[property_name(branch)])
        return int(value["snapshot-id"]), str(value["path"]), str(value.get("columns", ""))
    except (KeyError, ValueError, TypeError):
        return None, "", ""


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.isdigit())


def _joined(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
