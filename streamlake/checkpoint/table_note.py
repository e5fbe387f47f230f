"""What a checkpoint directory remembers of the table that it writes: a small JSON file beside Spark's own logs.

Written by the sink through Spark's file systems and by `streamlake recover` through a FileIO. Invariant: a note only
ever stops a job; what it says about commits is a lower bound, so it may lag behind and never runs ahead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

DIRECTORY = "streamlake"
NO_CHECKPOINT = -1
"""The checkpoint id of a table that holds none of a job's checkpoints yet."""


@dataclass(frozen=True)
class Noted:
    """What a note says. `committed`: a checkpoint of the directory is in the table; `checkpoint_id`: one that is, and
    nothing newer was known to be when the note was written (None: notes of old did not tell). `pipelines` renames
    pipelines for this directory. `staged_id`: the last checkpoint that Spark was told to be done while it was only staged
    (None: there is none)."""

    table_uuid: str
    committed: bool
    checkpoint_id: int | None = None
    pipelines: Mapping[str, str] = field(default_factory=dict)
    staged_id: int | None = None


def note_path(table: str, branch: str) -> str:
    """Where the note about a table and branch lies, below the checkpoint directory."""
    name = hashlib.sha256(f"{table}\n{branch}".encode()).hexdigest()[:16]
    return f"{DIRECTORY}/{name}.json"


def note_to_bytes(noted: Noted, table: str, branch: str) -> bytes:
    obj = {
        "table": table,
        "branch": branch,
        "table-uuid": noted.table_uuid,
        "committed": noted.committed,
        "checkpoint-id": noted.checkpoint_id,
        "pipelines": dict(noted.pipelines),
        "staged-id": noted.staged_id,
    }
    return json.dumps(obj, indent=1).encode()


def note_from_text(text: str) -> Noted | None:
    """The inverse; None for a note that a crash cut short."""
    try:
        obj = json.loads(text)
        known, staged = obj.get("checkpoint-id"), obj.get("staged-id")
        return Noted(
            str(obj["table-uuid"]),
            obj["committed"] is True,
            None if known is None else int(known),
            {str(name): str(other) for name, other in obj.get("pipelines", {}).items()},
            None if staged is None else int(staged),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
