"""The comparison of a checkpoint directory with its table, for the sink, `streamlake recover` and doctor.

`History.finding` compares the table with itself; here its last checkpoint of the job is compared with the
directory's note and offset log. No Spark: a running query passes its logs in, a command reads the directory's
files. Invariants: a directory in any state that a crash of the driver leaves behind has no finding; a table
that begins where its newest commit does not end has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity, offsets_digest
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_note import NO_CHECKPOINT, Calls, Noted
from streamlake.commit.findings import (
    checkpoint_older,
    diverged,
    gap,
    markers_lost,
    other_table,
    staged_lost,
    table_older,
    table_replaced,
    written_lost,
)
from streamlake.commit.history import History, committed_snapshot, marker_of
from streamlake.commit.lineage import Finding
from streamlake.commit.marker import OFFSETS_DIGEST, Marker
from streamlake.pipeline.runs.lineage.staged_ahead import lost_staged
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.table import Table

LoggedOffsets = Callable[[int], tuple[str, ...] | None]
"""Gives the canonical end offsets of a checkpoint in a directory's offset log; None where the log does not
have it, or no longer."""


@dataclass(frozen=True)
class KnownDirectory:
    """What a directory records about a table.

    `noted` is its note about the table, `logged` its offset log (None: it is not read). `others` gives the
    other tables that it has notes about, `staged` what is staged for the table; both are called only where
    they matter. `calls` says for which checkpoints the table is called. `written` is the last checkpoint that
    was written to the table, by the log of a query of many tables.
    """

    noted: Noted | None
    next_checkpoint_id: int
    logged: LoggedOffsets | None = None
    others: Callable[[], Sequence[str]] = tuple
    calls: Calls = Calls.EVERY
    written: int = NO_CHECKPOINT
    staged: Callable[[], Iterable[Committable]] = tuple

    def digest_of(self, checkpoint_id: int) -> str | None:
        """The digest of a checkpoint's end offsets in the offset log; None where the log lacks it."""
        if checkpoint_id == NO_CHECKPOINT:
            return offsets_digest(())
        ends = None if self.logged is None else self.logged(checkpoint_id)
        return None if ends is None else offsets_digest(ends)


def binding_note(noted: Noted | None, next_checkpoint_id: int, table_uuid: str) -> Noted | None:
    """The part of a note that binds a start: until its first checkpoint is done, the table may change."""
    if next_checkpoint_id or noted is None:
        return noted
    return replace(noted, table_uuid=table_uuid, committed=False, checkpoint_id=None)


def common_checkpoint(
    table: Table, branch: str, job_id: str, logged: LoggedOffsets, before: int
) -> int | None:
    """The newest checkpoint below `before` that a branch and a directory both hold, with the same offsets;
    None without one.
    """
    head = table.metadata.head(branch)
    for snapshot in table.metadata.ancestors(None if head is None else head.snapshot_id):
        marker = marker_of(snapshot, job_id)
        if marker is None or not 0 <= marker.checkpoint_id < before:
            continue
        offsets = logged(marker.checkpoint_id)
        if offsets is not None and offsets_digest(offsets) == marker.offsets_digest:
            return marker.checkpoint_id
    return None


def directory_finding(
    table: Table, branch: str, job_id: str, marker: Marker | None, directory: KnownDirectory
) -> Finding | None:
    """The disagreement between a directory and the table's last checkpoint of its job (`marker`), if any.

    A marker at or above the next checkpoint is no finding here: whether that is a replay is decided with its
    offsets.
    """
    noted = directory.noted
    if noted is not None and noted.table_uuid != table.uuid:
        return table_replaced(table.location, noted.table_uuid, table.uuid)
    if marker is None and noted is not None and noted.committed:
        return markers_lost(table.location)
    if marker is None:
        gone = lost(table, branch, job_id, None, directory)
        if gone is not None:
            return gone
        done = directory.next_checkpoint_id - 1
        if branch not in table.metadata.refs and _common(table, MAIN_BRANCH, job_id, directory) == done:
            return None  # the branch is created from main, which holds all that was done
        return uncovered(table.location, None, directory)
    if noted is not None and noted.checkpoint_id is not None and marker.checkpoint_id < noted.checkpoint_id:
        common = _common(table, branch, job_id, directory)
        return table_older(table.location, noted.checkpoint_id, marker, common)
    if not 0 <= marker.checkpoint_id < directory.next_checkpoint_id:
        return None
    own = None if directory.logged is None else directory.logged(marker.checkpoint_id)
    if own is not None and offsets_digest(own) != marker.offsets_digest:
        next_id = directory.next_checkpoint_id
        common = _common(table, branch, job_id, directory)
        return diverged(table.location, next_id, marker, offsets_digest(own), common)
    gone = lost(table, branch, job_id, marker, directory)
    if gone is not None or directory.logged is None:
        return gone
    return uncovered(table.location, marker, directory)


def lost(
    table: Table, branch: str, job_id: str, marker: Marker | None, directory: KnownDirectory
) -> Finding | None:
    """The finding for a checkpoint that Spark counts as done, and that is neither in the table nor staged."""
    noted_id = None if directory.noted is None else directory.noted.staged_id
    staged_id = (
        noted_id if noted_id is not None and noted_id < directory.next_checkpoint_id else NO_CHECKPOINT
    )
    held = NO_CHECKPOINT if marker is None else marker.checkpoint_id
    last = max(staged_id, directory.written)
    gone = lost_staged(held, last, directory.staged, directory.digest_of)
    if gone is None:
        return None
    if gone <= staged_id:
        return staged_lost(table.location, gone, marker)
    return written_lost(table.location, gone, marker, _common(table, branch, job_id, directory))


def uncovered(location: str, marker: Marker | None, directory: KnownDirectory) -> Finding | None:
    """The finding for checkpoints that the directory has done and the table does not hold, unless the table
    had no rows in them.
    """
    noted, done = directory.noted, directory.next_checkpoint_id - 1
    held = max(
        NO_CHECKPOINT if marker is None else marker.checkpoint_id,
        NO_CHECKPOINT if noted is None else noted.covered(directory.digest_of),
    )
    calls = directory.calls
    if noted is not None and noted.calls is Calls.EVERY and calls is Calls.QUERY:
        calls = noted.calls  # the table was a query's only one so far
    if held >= done or calls is Calls.QUERY:
        return None
    if (marker is not None) if noted is None else (noted.passed_id is None):
        return None  # bound by an older version, which did not note checkpoints without rows
    if held != NO_CHECKPOINT and _ends_alike(directory, held, done):
        return None
    others = directory.others()
    if calls is Calls.FUNCTION and not others:
        return None  # a function may leave out micro-batches
    if noted is None:
        return other_table(location, done, others)
    has_entry = directory.logged is not None and directory.logged(held) is not None
    can_go_back = held == NO_CHECKPOINT or (marker is not None and has_entry)
    may_join = calls is Calls.FUNCTION
    return gap(location, held, done, others, can_go_back=can_go_back, may_join=may_join)


def _ends_alike(directory: KnownDirectory, one: int, other: int) -> bool:
    """Whether two checkpoints are known to end at the same offsets, so that nothing was read between them."""
    ends = None if directory.logged is None else directory.logged(one)
    return ends is not None and directory.logged is not None and directory.logged(other) == ends


def _common(table: Table, branch: str, job_id: str, directory: KnownDirectory) -> int | None:
    if directory.logged is None:
        return None
    return common_checkpoint(table, branch, job_id, directory.logged, directory.next_checkpoint_id)


def lineage_findings(
    table: Table,
    branch: str,
    pipeline: str,
    directory: SparkDirectory,
    noted: Noted | None,
    *,
    named: str | None = None,
    calls: Calls | None = None,
) -> tuple[Finding, ...]:
    """Every disagreement between a table and the directory of a stopped stream into `branch`, the most
    significant first.

    `pipeline` is the stream's name, `noted` the directory's note about the table, whose name there is `named`
    (None: its location). `calls` (None: as noted): for which checkpoints the table is called. Raises
    DataInvalidError for a damaged property, FeatureUnsupportedError for an offset log of another version.
    """
    history = History.of(table.metadata, branch, pipeline, directory.job_id)
    own = history.finding()
    found = [] if own is None else [own]
    marker = None if own is not None else history.marker
    next_id = directory.next_checkpoint
    store = CommittableStore(table.io, table.locations, directory.job_id, branch)
    known = KnownDirectory(
        noted,
        next_id,
        directory.end_offsets,
        lambda: directory.other_tables(named or table.location, branch),
        calls or (Calls.EVERY if noted is None else noted.calls),
        directory.written(named or table.location, branch),
        store.pending,
    )
    if own is None or (noted is not None and noted.table_uuid != table.uuid):
        between = directory_finding(table, branch, directory.job_id, marker, known)
        found += [] if between is None else [between]
    if not found and marker is not None and marker.checkpoint_id >= next_id:
        older = _ahead(table, branch, marker, directory, pipeline, next_id)
        found += [] if older is None else [older]
    return tuple(found)


def _ahead(
    table: Table, branch: str, marker: Marker, directory: SparkDirectory, pipeline: str, next_id: int
) -> Finding | None:
    """The table holds the directory's next checkpoint: a replay, if it ends where the directory's does."""
    own = directory.end_offsets(next_id)
    identity = CheckpointIdentity(pipeline, directory.job_id, next_id, (), own or ())
    snapshot = committed_snapshot(table.metadata, branch, identity)
    digest = marker.offsets_digest if marker.checkpoint_id == next_id else None
    if snapshot is not None:
        digest = snapshot.summary.get(OFFSETS_DIGEST)
    if own is not None and digest == identity.offsets_digest:
        return None
    return checkpoint_older(table.location, identity, marker, digest)
