"""The table log of a query with many tables: the last checkpoint that wrote each of them.

It is in the checkpoint directory. Such a table is written only where a checkpoint has rows for it. So a table
that had no rows looks like one that has lost some, both in the table and in Spark's logs. Entry N of this
log, `streamlake/tables/N`, records for every table the last checkpoint up to N that was committed to it, or
staged for it. It is written before Spark records N as done; where nothing has changed there is no entry.
Invariants: an entry never names a checkpoint that did not write the table; entries of another job, or of a
checkpoint that Spark has forgotten and planned anew, are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from streamlake.checkpoint.table_note import DIRECTORY as NOTES

DIRECTORY = f"{NOTES}/tables"


def table_log_path(checkpoint_id: int) -> str:
    """Path of a checkpoint's entry, below the checkpoint directory."""
    return f"{DIRECTORY}/{checkpoint_id}"


def logged_table(table: str, branch: str) -> str:
    """The name of a table and branch in entries."""
    return f"{table}@{branch}"


def table_log_to_bytes(job_id: str, digest: str, written: Mapping[str, int]) -> bytes:
    """The entry of a checkpoint that ends at offsets with this digest.

    `written` is the last checkpoint of each table, by `logged_table`.
    """
    obj = {"job-id": job_id, "offsets-digest": digest, "tables": dict(sorted(written.items()))}
    return json.dumps(obj, ensure_ascii=False).encode()


def newest_written(
    checkpoints: Iterable[int],
    text_of: Callable[[int], str | None],
    job_id: str,
    digest_of: Callable[[int], str | None],
) -> dict[str, int]:
    """The tables in a job's newest valid entry, each with its last checkpoint; empty where there is none.

    `checkpoints` are those that have entries. `digest_of` gives the digest of the offsets that a checkpoint
    ends at by the directory's offset log; None where the log no longer has it.
    """
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
    """The entries that no checkpoint from `before` on needs: those with a later one up to `before`."""
    return sorted(each for each in checkpoints if each <= before)[:-1]
