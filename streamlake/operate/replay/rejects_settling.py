"""Changes of a rejects table: replayed records are removed, and those that failed again get their new errors.

The files that hold such records are rewritten, in one commit onto the snapshot that was read. `streamlake
rejects` drops and corrects records in the same way. Invariant: it can be repeated any number of times; a
record that is already gone is no error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake import clock, ids
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.committer import Committer
from streamlake.decode.rejected_records import REJECTS
from streamlake.errors import CommitConflictError, HeadMovedError, StorageError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.on_progress import OnProgress, unseen
from streamlake.operate.replay.replay_plan import ReplayPlan, places
from streamlake.read.scan import TableScan
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.options import RetryOptions
from streamlake.table.table import Table
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import write_rows

_MODE = "upsert"
_FILE = "_file"


Change = Callable[[pa.Table, pa.Array], pa.Table | None]
"""Gives the rows of one file as they are to be, from the rows and their places; None: as they are."""


def settle(rejects: Table, plan: ReplayPlan, on_progress: OnProgress = unseen) -> None:
    """Carry out a plan whose records are in the table.

    Raises CommitConflictError when other writers are always faster.
    """
    advice = "the records are in the table, and the next replay takes them out of the rejects"
    rewrite(rejects, plan.identity, partial(_settled, plan), advice, on_progress)


def rewrite(
    rejects: Table,
    given: CheckpointIdentity,
    change: Change,
    advice: str,
    on_progress: OnProgress = unseen,
) -> None:
    """Rewrite the files that a change concerns, as the next checkpoint of the pipeline of `given`.

    Raises CommitConflictError, which ends with the advice, when other writers are always faster.
    """
    retry = RetryOptions.for_commit(rejects.properties)
    deadline = clock.monotonic() + retry.total_timeout_ms / 1000
    committer = Committer(rejects, MAIN_BRANCH)
    while True:
        committable, files = _staged(rejects, change, next_checkpoint(committer, given), on_progress)
        if committable is None:
            return
        try:
            committer.commit(committable, files=files)
            return
        except HeadMovedError as moved:
            for file in files:
                with contextlib.suppress(StorageError):
                    rejects.io.delete(file.file_path)
            if clock.monotonic() > deadline:
                raise CommitConflictError(
                    f"{moved}. Other writers committed first for {retry.total_timeout_ms} ms; {advice}"
                ) from moved


def next_checkpoint(committer: Committer, given: CheckpointIdentity) -> CheckpointIdentity:
    """The checkpoint after the last one of the pipeline of `given`, with its end offsets."""
    marker = committer.marker(given)
    next_id = (NO_CHECKPOINT if marker is None else marker.checkpoint_id) + 1
    return replace(given, checkpoint_id=next_id, start_offsets=())


def staged_rejects(
    rejects: Table, identity: CheckpointIdentity, rows: Sequence[pa.Table], mode: str
) -> tuple[Committable, tuple[DataFile, ...]]:
    """New data files with rows of a rejects table, and the Committable that adds them."""
    files = _written(rejects, identity, rows)
    committable = Committable(
        identity=identity,
        table_uuid=rejects.uuid,
        branch=MAIN_BRANCH,
        mode=mode,
        manifests=write_delta_manifests(
            rejects.io, rejects.locations, rejects.metadata, files, ids.new_uuid()
        ),
        rows=sum(file.record_count for file in files),
        data_files=len(files),
        bytes=sum(file.file_size_in_bytes for file in files),
    )
    return committable, files


def _settled(plan: ReplayPlan, rows: pa.Table, at: pa.Array) -> pa.Table | None:
    gone = pc.is_in(at, pa.array(plan.done, pa.string()))
    changed = _with_new_errors(rows, at, plan.failed)
    if changed is None and not pc.any(gone, min_count=0).as_py():
        return None
    return (rows if changed is None else changed).filter(pc.invert(gone))


def _staged(
    rejects: Table, change: Change, identity: CheckpointIdentity, on_progress: OnProgress
) -> tuple[Committable | None, tuple[DataFile, ...]]:
    snapshot = rejects.current_snapshot
    scan = TableScan(rejects, columns=[*rejects.schema.column_names, _FILE])
    planned: Mapping[str, DataFile] = {task.data_file.file_path: task.data_file for task in scan.plan_files()}
    removed: list[DataFile] = []
    kept: list[pa.Table] = []
    of_files = _by_file(scan.to_arrow())
    for number, (path, rows) in enumerate(of_files):
        on_progress("files of the rejects", number, len(of_files))
        changed = change(rows, places(rows))
        if changed is not None:
            removed.append(planned[path])
            kept.append(changed)
    if not removed:
        return None, ()
    committable, files = staged_rejects(rejects, identity, kept, _MODE)
    base = None if snapshot is None else snapshot.snapshot_id
    return replace(committable, removed=tuple(removed), base_snapshot_id=base), files


def _by_file(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    """The rows of each file, without the column that names it."""
    encoded = rows.column(_FILE).combine_chunks().dictionary_encode()
    rows = rows.drop_columns([_FILE])
    of_file = encoded.indices.to_numpy(zero_copy_only=False)
    return [
        (str(path), rows.take(pa.array(np.flatnonzero(of_file == number))))
        for number, path in enumerate(encoded.dictionary.to_pylist())
    ]


def _with_new_errors(rows: pa.Table, at: pa.Array, failed: Mapping[str, tuple[str, str]]) -> pa.Table | None:
    """The rows with their new errors; None where all errors are as before."""
    if not failed:
        return None
    found = pc.index_in(at, pa.array(list(failed), pa.string()))
    changed = False
    for number, name in enumerate(("error_class", "error_message")):
        column = rows.column(name)
        news = pa.array([reason[number] for reason in failed.values()], pa.string()).take(found)
        updated = pc.coalesce(news, column)
        if not updated.equals(column):
            changed = True
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), updated)
    return rows if changed else None


def _written(rejects: Table, identity: CheckpointIdentity, kept: Sequence[pa.Table]) -> tuple[DataFile, ...]:
    target = WriteTarget.for_table(
        rejects.metadata,
        io=rejects.io,
        job_id=identity.job_id,
        checkpoint_id=identity.checkpoint_id,
        operation_uuid=ids.new_uuid(),
    )
    schema = schema_to_arrow(REJECTS, field_ids=False)
    batches = [
        batch
        for part in kept
        for batch in part.select(
            [*schema.names, *(name for name in part.column_names if name not in schema.names)]
        ).to_batches()
    ]
    return write_rows(target, batches, 0, 0, 0).data_files
