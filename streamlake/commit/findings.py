"""Findings about a table and a checkpoint directory that contradict each other.

The committer and the sink compare the two and ask for the matching finding here; contradictions inside one
table are in `history`. Each function only words one finding; none reads anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.history import ADOPT_ROWS, rewind
from streamlake.commit.lineage import Finding, Kind, Way, WayOut
from streamlake.commit.marker import Marker

_SHOWN = 5
_NEW = "start the stream into a new table with a new checkpoint directory, or restore the old table"


def checkpoint_older(
    location: str, identity: CheckpointIdentity, marker: Marker, digest: str | None
) -> Finding:
    """The table has committed other offsets under this checkpoint id.

    `digest` is that of the table's offsets; None where the table no longer has it.
    """
    held = (
        f"it holds checkpoint {identity.checkpoint_id} with other source offsets (digest {digest[:8]}, here "
        f"{identity.offsets_digest[:8]})"
        if digest is not None
        else f"it is at checkpoint {marker.checkpoint_id} and no longer knows what checkpoint "
        f"{identity.checkpoint_id} held"
    )
    return Finding(
        Kind.CHECKPOINT_OLDER,
        f"the checkpoint directory is older than the table {location}: it is about to write checkpoint "
        f"{identity.checkpoint_id}, and the table holds checkpoints up to {marker.checkpoint_id} of it. "
        f"So {identity} does not belong to the state of {location}: {held}",
        "lose rows (their checkpoint ids are taken) or write them twice",
        (
            WayOut(
                Way.ROLLBACK,
                "rolls the branch back to the snapshot of the checkpoint that the directory is at; the "
                "stream writes what is newer again",
            ),
            WayOut(
                Way.ADOPT,
                f"{ADOPT_ROWS}: rows of newer checkpoints are written twice (upserts replace themselves)",
            ),
            _fork(),
        ),
        "restore the checkpoint directory that wrote the table last",
    )


def diverged(
    location: str, checkpoint_id: int, marker: Marker, own_digest: str, common: int | None = None
) -> Finding:
    """The table's last checkpoint is of this job, but this directory has another one under its id.

    `common` is the last checkpoint that both have, where it is known.
    """
    return Finding(
        Kind.DIVERGED,
        f"{location} holds checkpoint {marker.checkpoint_id} of job {marker.job_id} with other source "
        f"offsets (digest {marker.offsets_digest[:8]}) than this checkpoint directory (digest "
        f"{own_digest[:8]}), which is about to commit checkpoint {checkpoint_id}: the directory was copied "
        "and both were started, or it was restored from an older copy",
        "leave out rows, or write those twice that both directories have read",
        (
            WayOut(
                Way.ROLLBACK,
                "rolls the branch back to the newest snapshot that belongs to this directory; the stream "
                "writes what is newer again",
            ),
            *([] if common is None else [rewind(common)]),
            WayOut(Way.ADOPT, f"{ADOPT_ROWS}: rows between the two are left out, or in the table twice"),
            _fork(),
        ),
        "run only the directory that wrote the table last",
    )


def table_older(location: str, noted: int, marker: Marker | None, common: int | None = None) -> Finding:
    """The table lacks checkpoints that this directory has seen in it. `common`: see `diverged`."""
    held = "none" if marker is None else f"nothing newer than checkpoint {marker.checkpoint_id}"
    back = common if common is not None else None if marker is None else marker.checkpoint_id
    ways = [] if back is None else [rewind(back)]
    ways.append(WayOut(Way.ADOPT, f"{ADOPT_ROWS}: the rows in between stay out"))
    return Finding(
        Kind.TABLE_OLDER,
        f"this checkpoint directory has committed checkpoint {noted} to {location}, but the table holds "
        f"{held}: the table was replaced by an older state",
        "leave out the rows in between",
        tuple(ways),
        "restore the newer state of the table",
    )


def staged_lost(location: str, staged_id: int, marker: Marker | None) -> Finding:
    """A checkpoint that Spark recorded as done while only staged is neither in the table nor staged."""
    held = (
        "no checkpoint of it" if marker is None else f"nothing newer than checkpoint {marker.checkpoint_id}"
    )
    return replace(
        table_older(location, staged_id, marker),
        found=f"checkpoint {staged_id} was staged for {location}, and Spark went on before it was committed; "
        f"now the table holds {held}, and what was staged is gone: files below its metadata folder "
        "were deleted",
        by_hand="put the staged checkpoints back from a copy of the table's metadata folder",
    )


def written_lost(location: str, written: int, marker: Marker | None, common: int | None = None) -> Finding:
    """A checkpoint that a query of many tables has written to one of them is gone from that table.

    It is not staged for it, either.
    """
    held = (
        "no checkpoint of it" if marker is None else f"nothing newer than checkpoint {marker.checkpoint_id}"
    )
    return replace(
        table_older(location, written, marker, common),
        found=f"the query of this checkpoint directory has written checkpoint {written} to {location}, but "
        f"the table holds {held}, and it is not staged: the table was replaced by an older state, or "
        "what was staged was deleted",
        by_hand="restore the newer state of the table, with its metadata folder. A directory that goes back "
        "does so for all of its "
        "query's tables: those that hold more are refused then, and go back in the same way",
    )


def staged_unfit(location: str, staged_id: int, marker: Marker | None, reason: str) -> Finding:
    """A checkpoint that Spark recorded as done while it was only staged can no longer be committed."""
    held = (
        "no checkpoint of it" if marker is None else f"nothing newer than checkpoint {marker.checkpoint_id}"
    )
    return replace(
        table_older(location, staged_id, marker),
        found=f"checkpoint {staged_id} is staged for {location}, and Spark went on before it was committed; "
        f"the table holds {held}, and what is staged can no longer be committed: {reason}",
        by_hand="undo what others changed in the table, where that is possible",
    )


def staged_by_another(location: str, identity: CheckpointIdentity, staged: CheckpointIdentity) -> Finding:
    """Another stream, which writes ahead of its commits, has staged another checkpoint under this id."""
    return Finding(
        Kind.DIVERGED,
        f"checkpoint {identity.checkpoint_id} of job {identity.job_id} is staged for {location} with other "
        f"source offsets (digest {staged.offsets_digest[:8]}) than this checkpoint directory has for it "
        f"(digest {identity.offsets_digest[:8]}): the directory was copied and both were started, or it was "
        "restored from an older copy",
        "replace what was staged, which the other directory counts as done",
        (_fork(),),
        "start the directory that staged it, which commits it first",
    )


def table_replaced(location: str, noted_uuid: str, now_uuid: str) -> Finding:
    """Another table is at the location of the one that this directory has written."""
    return Finding(
        Kind.TABLE_REPLACED,
        f"this checkpoint directory was written into another table at {location} (table uuid {noted_uuid}, "
        f"now {now_uuid}): the table was dropped and created again, or replaced",
        "leave out the rows of earlier checkpoints",
        (
            WayOut(Way.ADOPT, "continues into the new table: rows of earlier checkpoints are left out of it"),
            WayOut(
                Way.REWIND,
                "puts the checkpoint directory back to before its first checkpoint: the stream fills the "
                "new table from its beginning, as far as the source still has it",
                NO_CHECKPOINT,
            ),
        ),
        _NEW,
    )


def table_gone(location: str, noted_uuid: str) -> Finding:
    """The table that the directory wrote no longer exists."""
    return Finding(
        Kind.TABLE_GONE,
        f"this checkpoint directory was written into a table at {location} (table uuid {noted_uuid}) that "
        "was dropped: there is no table now",
        "create a table and leave the rows of earlier checkpoints out of it",
        (
            WayOut(
                Way.REWIND,
                "puts the checkpoint directory back to before its first checkpoint: started with create, "
                "the stream creates the table again and fills it from its beginning, as far as the source "
                "still has it",
                NO_CHECKPOINT,
            ),
        ),
        "restore the old table; or start the stream with a new checkpoint directory; or, to leave the rows "
        "of earlier checkpoints out, create the table by hand and start the stream, whose error then has "
        "the command for that (--adopt)",
    )


def other_table(location: str, done: int, others: Sequence[str]) -> Finding:
    """A directory with checkpoints up to `done` has never written this table; it has written `others`."""
    return Finding(
        Kind.OTHER_TABLE,
        f"this checkpoint directory has done {_checkpoints(0, done)} without {location}: {_wrote(others)}",
        f"leave the rows of {_checkpoints(0, done)} out of this table"
        + (", and those that follow out of the other" if others else ""),
        (
            WayOut(
                Way.ADOPT,
                "binds the directory to this table, which begins with the next checkpoint: rows of earlier "
                "ones are left out of it",
            ),
            WayOut(
                Way.REWIND,
                "puts the checkpoint directory back to before its first checkpoint: the stream fills this "
                "table from the beginning, as far as the source still has it",
                NO_CHECKPOINT,
            ),
        ),
        "start this table with a checkpoint directory of its own, and this directory with its own table; a "
        "function for foreachBatch that calls the sink of a table later, or for some micro-batches only, "
        "says so by may_join=True",
    )


def another_pipelines(location: str, table: str, pipeline: str, others: Sequence[tuple[str, str]]) -> Finding:
    """The directory at `location` is that of other pipelines: `others` are these, each with its table.

    `pipeline` was to start with it, into `table`.
    """
    owners = [f"pipeline '{name}' (table {of})" for name, of in others]
    return Finding(
        Kind.OTHER_TABLE,
        f"{location} is the checkpoint directory of {_listed(owners)}, not of '{pipeline}'",
        f"go on in {table} where '{others[0][0]}' has stopped in its own source",
        by_hand="correct the location of the checkpoint directory (`checkpoint:` in a pipeline file): each "
        "pipeline has one of its own, and a new pipeline a new one",
    )


def other_tables(tables: str, done: int, others: Sequence[str]) -> Finding:
    """A directory with checkpoints up to `done` has written `others` instead of this query's tables."""
    return Finding(
        Kind.OTHER_TABLE,
        f"this checkpoint directory has done {_checkpoints(0, done)}, in which it has read records of "
        f"topics, without {tables}: {_wrote(others)}",
        "leave these records out of the tables that they belong to now",
        (
            WayOut(
                Way.ADOPT,
                "binds the directory to these tables, which begin with the next checkpoint: records that "
                "were read before are left out of them",
            ),
        ),
        "give the tables their old names again, or a checkpoint directory of their own",
    )


def _wrote(others: Sequence[str]) -> str:
    return (
        f"it has written {_listed(others)}" if others else "it belongs to another query, or to another sink"
    )


def of_many(location: str, done: int, template: str) -> Finding:
    """The checkpoint directory of a query of many tables is used for one table alone."""
    return Finding(
        Kind.OTHER_TABLE,
        f"this checkpoint directory belongs to a query of many tables, {template}, which has done "
        f"{_checkpoints(0, done)}",
        f"leave out of {location} what this query has read of its records before, and of the others what "
        "follows",
        by_hand="start the query of many tables again, or give this table a checkpoint directory of its own",
    )


def gap(
    location: str,
    held: int,
    done: int,
    others: Sequence[str],
    *,
    can_go_back: bool,
    may_join: bool = False,
) -> Finding:
    """The directory has run checkpoints without the table: those after `held`, up to `done`.

    `may_join`: a user's function calls the sink, so the finding also names the option `may_join`.
    """
    joins = (
        "; a function for foreachBatch that calls the sink of a table for some micro-batches only says so "
        "by may_join=True"
    )
    at = f"holds its checkpoints up to {held}" if held != NO_CHECKPOINT else "holds none of its checkpoints"
    by = f"{_listed(others)}, or another sink," if others else "another table or another sink"
    ways = [rewind(held)] if can_go_back else []
    ways.append(
        WayOut(Way.ADOPT, f"{ADOPT_ROWS}: rows of {_checkpoints(held + 1, done)} stay out of the table")
    )
    return Finding(
        Kind.GAP,
        f"this checkpoint directory has done {_checkpoints(held + 1, done)} without {location}, which {at}: "
        f"{by} was written from it meanwhile",
        "begin at other source offsets than the table's newest commit ends at, and so leave the rows of "
        f"{_checkpoints(held + 1, done)} out",
        tuple(ways),
        "give each table a checkpoint directory of its own" + (joins if may_join else ""),
    )


def torn_log(directory: str, torn: Sequence[str]) -> Finding:
    """Entries of Spark's logs in a checkpoint directory are incomplete."""
    return Finding(
        Kind.TORN_LOG,
        f"{_listed(torn)} of {directory} are empty, cut short or without their plan, as a loss of power or "
        "a copy of the directory that ended early leaves them",
        "end in an error of Spark's own, which cannot start from them",
        (
            WayOut(
                Way.REMOVE_TORN,
                "deletes them: Spark runs their checkpoints again, and what the table has of them is "
                "skipped, or, where they end elsewhere now, refused with its ways out",
            ),
        ),
        "restore them from a copy of the directory. `streamlake run` and sink.start delete them by "
        "themselves on a local disk",
    )


def _checkpoints(first: int, last: int) -> str:
    return f"checkpoint {last}" if first == last else f"checkpoints {first} to {last}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def markers_lost(location: str) -> Finding:
    """The table holds no commit marker, neither property nor snapshot, of a directory that has written it."""
    return Finding(
        Kind.MARKERS_LOST,
        f"this checkpoint directory has written {location}, but the table no longer knows it: the snapshots "
        "have expired or were rolled back, and the table property of the pipeline is gone",
        "leave rows out or write them twice, because replayed rows cannot be distinguished from new ones",
        (
            WayOut(
                Way.ADOPT,
                "sets the property again; the table is taken to hold all that the directory has committed, "
                "and what is staged where its files are in the table",
            ),
        ),
        "set the property to what an earlier metadata file of the table has, or start with the checkpoint "
        "directory that belongs to the table's state",
    )


def staged_gone(location: str, checkpoint_id: int) -> Finding:
    """Files of a staged checkpoint are gone, and the table holds no commit marker of its job."""
    return Finding(
        Kind.MARKERS_LOST,
        f"checkpoint {checkpoint_id} is staged for {location}, but files of it are no longer there, and the "
        "table does not know this checkpoint directory: either it was committed, compacted and expired, and "
        "the table property of the pipeline is gone; or its files were deleted as orphans before it was "
        "committed",
        "commit files that do not exist",
        (
            WayOut(
                Way.ADOPT,
                "counts the checkpoint as committed, and sets the property again: correct if its rows are "
                "in the table",
            ),
        ),
        "where its rows are not in the table, move its file away from the folder metadata/streamlake of the "
        "table, so that the stream writes it again",
    )


def _fork() -> WayOut:
    return WayOut(
        Way.FORK,
        "continues as a pipeline of its own, with a job id of its own, beside the one that wrote the table: "
        "rows that both have read are in the table twice",
    )
