"""The offsets up to which every table of a pipeline has what was read for it.

Tables of one query commit on their own. A checkpoint has no commit in a table that it has no rows for, so the
newest commit of any table counts, unless the checkpoint directory shows that another table still lacks
something. Invariant: where that is in doubt, the earlier offsets count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.offset_summary import kafka_offsets
from streamlake.operate.status.table_status import StatusTarget, TableStatus
from streamlake.source.offsets import PartitionOffsets
from streamlake.storage.locations import noted_table


def committed_offsets_of(
    targets: Sequence[StatusTarget],
    tables: Sequence[TableStatus],
    directory: SparkDirectory | None,
    notes: list[str],
) -> PartitionOffsets | None:
    """The next offset of each partition; None where nothing is committed or recorded.

    Adds a note where one table is behind another.
    """
    newest = _newest(tables)
    if newest is None:
        return None
    if directory is not None and len(tables) > 1 and newest.job_id == directory.job_id:
        held = _held_by_all(targets, tables, directory, newest)
        if held is not None:
            last = newest.checkpoint_id
            notes.append(
                f"checkpoint {last} is not in all tables that it has rows for, or not done yet: the lag is "
                f"counted from {'the beginning' if held == NO_CHECKPOINT else f'checkpoint {held}'}"
            )
            return kafka_offsets(directory.end_offsets(held) or ())
    if newest.offsets is not None or directory is None or newest.job_id != directory.job_id:
        return newest.offsets
    # The summary leaves out offsets that are too long for it.
    return kafka_offsets(directory.end_offsets(newest.checkpoint_id or 0) or ())


def _newest(tables: Iterable[TableStatus]) -> TableStatus | None:
    known = [each for each in tables if each.checkpoint_id is not None]
    return max(known, key=lambda each: (each.committed_ms or 0, each.checkpoint_id or 0), default=None)


def _held_by_all(
    targets: Sequence[StatusTarget],
    tables: Sequence[TableStatus],
    directory: SparkDirectory,
    newest: TableStatus,
) -> int | None:
    """The last checkpoint that every table holds, as far as it has rows for it; None where it is the newest.

    A checkpoint that Spark has not finished may have failed in some tables. Of finished ones the directory
    logs in which each table was written last.
    """
    last = NO_CHECKPOINT if newest.checkpoint_id is None else newest.checkpoint_id
    if directory.end_offsets(last) is None:
        return None
    held = min(last, directory.last_completed)
    for target, table in zip(targets, tables, strict=True):
        own = NO_CHECKPOINT if table.checkpoint_id is None else table.checkpoint_id
        written = directory.written(noted_table(target.table, target.catalog), target.branch)
        if own < written:
            held = min(held, own if own != NO_CHECKPOINT else written - 1)
    return held if held < last else None
