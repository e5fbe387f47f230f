"""How far a pipeline is behind the table that it reads, counted from what its sink has committed.

It needs neither Spark nor a data file: the sink's last commit records the offset, the metadata of the table
that is read says what came after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import offsets_digest
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.offset_summary import table_offset
from streamlake.errors import StreamlakeError
from streamlake.operate.read_position import lost_snapshots, place_in_words, read_position
from streamlake.operate.status.table_status import StatusTarget, TableStatus
from streamlake.pipeline.iceberg import source_findings
from streamlake.pipeline.iceberg.stream_lag import StreamLag
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.storage.locations import noted_table


@dataclass(frozen=True)
class SourceLag:
    """A table that is read. None stands for what is not known.

    `snapshot_id` is the snapshot up to which its rows are committed (None: nothing is), and with `is_within`
    the one that is half read. `head_snapshot_id` is the newest one of the branch. The others are of
    StreamLag: `seconds` between these two, `rows` and `files` by the snapshots' summaries.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    is_within: bool = False
    head_snapshot_id: int | None = None
    snapshots: int | None = None
    files: int | None = None
    rows: int | None = None
    seconds: float | None = None


def source_lag(
    source: IcebergSource, committed: TableOffset | None, notes: list[str], problems: list[str]
) -> SourceLag:
    """The lag of a stream whose sink has committed up to an offset (None: nothing yet).

    What the table does not answer, or the history does not give, becomes a problem.
    """
    name, branch = str(source.location), source.settings.branch
    at = None if committed is None else committed.position
    head, lag = None, None
    try:
        table = open_table(name, source.catalog)
        found = read_position(table, source, committed)
        if found.lost:
            problems.append(f"{name}: {lost_snapshots(found.lost)}, because fail-on-data-loss is false")
        head, lag = found.enumerator.head(), found.enumerator.lag(found.offset)
        stopping = found.stopping()
        if stopping and not source.settings.skips_deletes:
            problems.append(str(source_findings.undone(table.name, stopping[0])))
        if committed is None:
            notes.append(
                f"nothing is committed yet: the stream begins {place_in_words(found.offset.position)}"
            )
    except StreamlakeError as error:
        problems.append(str(error))
    known = StreamLag() if lag is None else lag
    return SourceLag(
        table=name,
        branch=branch,
        snapshot_id=None if at is None else at.snapshot_id,
        is_within=at is not None and at.within is not None,
        head_snapshot_id=head,
        snapshots=None if lag is None else known.snapshots,
        files=None if lag is None else known.files,
        rows=None if lag is None else known.rows,
        seconds=None if lag is None else known.seconds,
    )


def committed_offset(
    target: StatusTarget, table: TableStatus, directory: SparkDirectory | None, problems: list[str]
) -> TableOffset | None:
    """The offset up to which the sink has what was read; None where nothing is committed, or recorded."""
    if directory is not None and table.job_id in (None, directory.job_id):
        held = _held(target, table, directory)
        texts = () if held == NO_CHECKPOINT else directory.end_offsets(held) or ()
        found = table_offset(texts)
        if found is not None:
            return found
        if texts:
            problems.append(
                f"{directory.location} has the offsets of another source, not of an Iceberg table; the "
                "pipeline needs a checkpoint directory of its own"
            )
    return table.source_offset


def _held(target: StatusTarget, table: TableStatus, directory: SparkDirectory) -> int:
    """The last checkpoint that is in the table, or has left nothing to be committed."""
    committed = NO_CHECKPOINT if table.checkpoint_id is None else table.checkpoint_id
    noted = directory.note(noted_table(target.table, target.catalog), target.branch)
    if noted is None or noted.passed_id is None or noted.passed_id <= committed:
        return committed
    if noted.staged_id is not None and noted.staged_id > committed:
        return committed
    texts = directory.end_offsets(noted.passed_id)
    is_ours = texts is not None and noted.passed_digest in (None, offsets_digest(texts))
    return min(noted.passed_id, directory.last_planned) if is_ours else committed
