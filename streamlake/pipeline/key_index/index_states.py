"""The states of the key index that a table names, in the summaries of its snapshots and in a property.

A commit names its state in its snapshot's summary. A snapshot cannot be changed later, so an index that was
rebuilt for one is named by a table property, with the snapshot's id. Invariant: a state counts only where its
snapshot is the branch's head or an ancestor; so after a rollback no index is used that contains too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from streamlake.commit.marker import INDEX_STATE, KEY_IDS, SEQUENCE_IDS
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.updates.metadata_changes import branch_head

PROPERTY_PREFIX = "streamlake.index-state."


@dataclass(frozen=True)
class NamedState:
    """The state file at `path` is the key index of `snapshot`.

    `columns` distinguishes indexes over different columns: field ids of the key and of `sequence_by`, ""
    where the table does not record them. `is_rebuilt`: a property names it.
    """

    snapshot: Snapshot
    path: str
    columns: str
    is_rebuilt: bool = False


def columns_text(key_ids: tuple[int, ...], sequence_ids: tuple[int, ...]) -> str:
    """The field ids of an index, in the form of `NamedState.columns`."""
    return f"{_joined(key_ids)}/{_joined(sequence_ids)}"


def named_states(metadata: TableMetadata, branch: str, down_to: int | None = None) -> Iterator[NamedState]:
    """The states of a branch's ancestry, newest snapshot first, and for one snapshot the rebuilt state first;
    with `down_to` only those of snapshots that are newer than the one of this id.
    """
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
    """The field ids of the key and of `sequence_by` of a state; None where the table does not record them."""
    key, _, sequence = state.columns.partition("/")
    return (_ids(key), _ids(sequence)) if key else None


def branches(metadata: TableMetadata) -> list[str]:
    """Every branch, main first."""
    others = [name for name, ref in metadata.refs.items() if ref.type == "branch"]
    return list(dict.fromkeys([MAIN_BRANCH, *others]))


def rebuilt_property(
    branch: str, snapshot_id: int, path: str, key_ids: tuple[int, ...], sequence_ids: tuple[int, ...]
) -> tuple[str, str]:
    """Name and value of the table property that names a rebuilt state."""
    value = {"snapshot-id": snapshot_id, "path": path, "columns": columns_text(key_ids, sequence_ids)}
    return property_name(branch), json.dumps(value)


def property_name(branch: str) -> str:
    """The name of the property for the rebuilt index of a branch."""
    return f"{PROPERTY_PREFIX}{branch}"


def _rebuilt(metadata: TableMetadata, branch: str) -> tuple[int | None, str, str]:
    """Snapshot id, path and columns in the property; a value that cannot be read counts as none."""
    try:
        value = json.loads(metadata.properties[property_name(branch)])
        return int(value["snapshot-id"]), str(value["path"]), str(value.get("columns", ""))
    except (KeyError, ValueError, TypeError):
        return None, "", ""


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.isdigit())


def _joined(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
