"""Could a pipeline go on from its checkpoint directory, or begin there? Writable, whole, and of one mind with the table."""

from __future__ import annotations

from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.commit.lineage import RecoverCommand
from streamlake.commit.marker import property_name, told_by_name
from streamlake.commit.offset_summary import source_offsets
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.pipeline.check_points import Points
from streamlake.pipeline.lineage_check import lineage_findings
from streamlake.pipeline.offset_log import require_tick
from streamlake.pipeline.sink_check import SinkPlan
from streamlake.source.offsets import SourceOffsets
from streamlake.storage.locations import table_location
from streamlake.storage.write_access import require_writable
from streamlake.table.table import Table

CHECKPOINT = "checkpoint"
LINEAGE = "lineage"


def opened_directory(location: str, points: Points) -> tuple[SparkDirectory | None, bool]:
    """The directory of a query that has been started there, and whether what is there could be told."""
    try:
        require_writable(table_location(location))
        directory = SparkDirectory(location)
    except InvalidOptionError:
        points.right(CHECKPOINT, f"{location} can be written; no query has been started from it yet")
        return None, True
    except StreamlakeError as error:
        points.error(CHECKPOINT, str(error))
        return None, False
    planned, completed = directory.last_planned, directory.last_completed
    points.right(
        CHECKPOINT,
        f"{location} can be written; job {directory.job_id}, last checkpoint planned {planned}, done {completed}",
    )
    return directory, True


def known_offsets(directory: SparkDirectory, points: Points) -> tuple[SourceOffsets | None, bool]:
    """Where a Kafka source goes on, and whether that could be told: None before the first checkpoint."""
    try:
        newest = f"offsets/{directory.last_planned}"
        log = directory.text(newest)
        if log is not None:
            require_tick(log, f"{directory.location}/{newest}")
        texts = directory.end_offsets(directory.last_planned)
    except StreamlakeError as error:
        points.error(CHECKPOINT, str(error))
        return None, False
    known = source_offsets(texts) if texts else None
    if texts and known is None:
        points.error(
            CHECKPOINT, f"{directory.location} is of a query with another source; give a directory of its own"
        )
    return known, known is not None or not texts


def check_lineage(
    plan: SinkPlan, table: Table, directory: SparkDirectory | None, location: str, points: Points
) -> None:
    """Whether the table and the directory tell the same of the pipeline."""
    name = plan.pipeline
    try:
        if directory is None:
            told = None if name is None else told_by_name(table.metadata, property_name(name, plan.branch))
            if told is not None:
                points.error(
                    LINEAGE,
                    f"pipeline '{name}' last wrote {table.location} as job {told.marker.job_id} (checkpoint "
                    f"{told.marker.checkpoint_id}), but {location} is new: the start will be refused. Restore the old "
                    "directory, start under another pipeline name, or start once and choose one of the ways out that the "
                    "refusal names",
                )
            return
        named = table.location if plan.catalog is None else plan.table
        noted = directory.note(named, plan.branch)
        own = name or f"{plan.table}:{directory.job_id}"
        own = own if noted is None else noted.pipelines.get(own, own)
        found = lineage_findings(table, plan.branch, own, directory, noted)
        command = RecoverCommand(named, own, plan.branch, plan.catalog, directory.location)
    except StreamlakeError as error:
        points.error(LINEAGE, str(error))
        return
    for finding in found:
        ways = "; or ".join(command.offers(finding))
        points.error(LINEAGE, f"{finding.found}. Going on would {finding.consequence}. Ways out: {ways}")
    if not found:
        points.right(LINEAGE, f"{named} and the checkpoint directory tell the same")
