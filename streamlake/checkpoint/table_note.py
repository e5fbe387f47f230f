"""The note in a checkpoint directory about a table that it writes: a small JSON file beside Spark's own logs.

The sink writes it through Spark's file systems, `streamlake recover` through a FileIO. Invariant: a note can
only stop a job. What it says about commits is a lower bound: it may lag behind, and never runs ahead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

DIRECTORY = "streamlake"
_NAME_LENGTH = 16
NO_CHECKPOINT = -1
"""The checkpoint id of a table that holds none of a job's checkpoints yet."""


class Calls(str, Enum):
    """For which checkpoints of its directory a table is written."""

    EVERY = "every"
    """Every checkpoint: the directory's query has only this table."""
    FUNCTION = "function"
    """Those for which a user's function calls the sink."""
    QUERY = "query"
    """Those that have records for the table: the query has many tables and keeps a log of them."""


@dataclass(frozen=True)
class Noted:
    """The content of a note.

    - `committed`: a checkpoint of the directory is in the table.
    - `checkpoint_id`: a checkpoint that is in the table; no newer one was known to be when the note was
      written. None: older notes do not say.
    - `pipelines` renames pipelines for this directory.
    - `staged_id`: the last checkpoint that Spark considers done while it is only staged. None: there is none.
    - `passed_id`: the last checkpoint that is done without a commit, because nothing in it was for the table.
      Everything before it is committed, staged, or was passed in the same way. None: older notes do not say.
    - `staged_digest` and `passed_digest` are of the offsets that these two end at.
    """

    table_uuid: str
    committed: bool
    checkpoint_id: int | None = None
    pipelines: Mapping[str, str] = field(default_factory=dict)
    staged_id: int | None = None
    passed_id: int | None = None
    calls: Calls = Calls.EVERY
    staged_digest: str | None = None
    passed_digest: str | None = None

    def with_checkpoint(self, checkpoint_id: int) -> Noted:
        """The note once the table holds a checkpoint; NO_CHECKPOINT for one adopted before the first."""
        committed = self.committed or checkpoint_id != NO_CHECKPOINT
        return replace(self, committed=committed, checkpoint_id=checkpoint_id)

    def covered(self, digest_of: Callable[[int], str | None]) -> int:
        """The last checkpoint that needs no commit, as far as the note knows.

        `digest_of` gives the digest of the offsets that a checkpoint ends at by the directory's offset log. A
        checkpoint that Spark has forgotten and planned anew is another one.
        """
        recorded = ((self.staged_id, self.staged_digest), (self.passed_id, self.passed_digest))
        known = [NO_CHECKPOINT if self.checkpoint_id is None else self.checkpoint_id]
        for checkpoint_id, digest in recorded:
            if checkpoint_id is not None and (digest is None or digest_of(checkpoint_id) in (None, digest)):
                known.append(checkpoint_id)
        return max(known)


def note_path(table: str, branch: str) -> str:
    """Path of the note about a table and branch, below the checkpoint directory."""
    name = hashlib.sha256(f"{table}\n{branch}".encode()).hexdigest()[:_NAME_LENGTH]
    return f"{DIRECTORY}/{name}.json"


def note_to_bytes(noted: Noted, table: str, branch: str) -> bytes:
    """The note about a table and branch as JSON."""
    obj = {
        "table": table,
        "branch": branch,
        "table-uuid": noted.table_uuid,
        "committed": noted.committed,
        "checkpoint-id": noted.checkpoint_id,
        "pipelines": dict(noted.pipelines),
        "staged-id": noted.staged_id,
        "passed-id": noted.passed_id,
        "calls": noted.calls.value,
        "staged-digest": noted.staged_digest,
        "passed-digest": noted.passed_digest,
    }
    return json.dumps(obj, indent=1).encode()


def note_from_text(text: str) -> Noted | None:
    """The note in this text; None for one that a crash cut short."""
    try:
        obj = json.loads(text)
        known, staged, passed = (obj.get(name) for name in ("checkpoint-id", "staged-id", "passed-id"))
        return Noted(
            str(obj["table-uuid"]),
            obj["committed"] is True,
            None if known is None else int(known),
            {str(name): str(other) for name, other in obj.get("pipelines", {}).items()},
            None if staged is None else int(staged),
            None if passed is None else int(passed),
            Calls(obj.get("calls", Calls.EVERY.value)),
            obj.get("staged-digest"),
            obj.get("passed-digest"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_note(name: str) -> bool:
    """Whether a file of this name below DIRECTORY is a note."""
    stem = name.removesuffix(".json")
    return stem != name and len(stem) == _NAME_LENGTH and all(digit in "0123456789abcdef" for digit in stem)


def shown_tables(subjects: Iterable[tuple[str, str]]) -> list[str]:
    """Tables and branches as messages name them, sorted."""
    return sorted(table if branch == "main" else f"{table} (branch {branch})" for table, branch in subjects)


def note_subject(text: str) -> tuple[str, str] | None:
    """The table and branch that a note is about; None where that cannot be read."""
    try:
        obj = json.loads(text)
        return str(obj["table"]), str(obj["branch"])
    except (ValueError, KeyError, TypeError):
        return None
