"""Which checkpoint each table of a query of many was written in last: a log of ours beside Spark's, in the checkpoint directory.

Such a table is written only where a checkpoint has rows for it, so one that had none looks like one that has lost some, in
the table as in Spark's logs. Entry N of this log, `streamlake/tables/N`, says of every table which checkpoint up to N was the
last that was committed to it, or staged for it. It is written before Spark is told that N is done, and where nothing has changed
there is none. Invariants: no entry names a checkpoint that a table was not written in; entries of another job, or of a
checkpoint that Spark has forgotten and planned anew, count for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from streamlake.checkpoint.table_note import DIRECTORY as NOTES

DIRECTORY = f"{NOTES}/tables"


def table_log_path(checkpoint_id: int) -> str:
    """Where the entry lies, below the checkpoint directory."""
    return f"{DIRECTORY}/{checkpoint_id}"


def logged_table(table: str, branch: str) -> str:
    """How entries name a table and branch."""
    return f"{table}@{branch}"


def table_log_to_bytes(job_id: str, digest: str, written: Mapping[str, int]) -> bytes:
    """The entry of a checkpoint that ends at offsets with this digest. `written`: the last checkpoint of each table, by
    `logged_table`."""
    obj = {"job-id": job_id, "offsets-digest": digest, "tables": dict(sorted(written.items()))}
    return json.dumps(obj, ensure_ascii=False).encode()


def newest_written(
    checkpoints: Iterable[int],
    text_of: Callable[[int], str | None],
    job_id: str,
    digest_of: Callable[[int], str | None],
) -> dict[str, int]:
    """What the newest entry of a job says that counts; nothing where none does. `checkpoints` are those that have entries,
    `digest_of` is that of the offsets which a checkpoint ends at by the directory's log (None: it is no longer there)."""
    for checkpoint_id in sorted(checkpoints, reverse=True):
        try:
            obj = json.loads(text_of(checkpoint_id) or "")
            written = {str(name): int(last) for name, last in obj["tables"].items()}
            is_own = obj["job-id"] == job_id and digest_of(checkpoint_id) in (None, obj["offsets-digest"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if is_own:
            return written
    return {}


def outlived(checkpoints: Iterable[int], before: int) -> list[int]:
    """The entries that say nothing about any checkpoint from `before` on: those with a later one up to it."""
    return sorted(each for each in checkpoints if each <= before)[:-1]
