"""Checks whether a pipeline can continue from its checkpoint directory, or start there.

The directory has to be writable, its logs whole, and it must agree with the table.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from streamlake.checkpoint.checkpoint_storage import checkpoint_properties
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.spark_logs import local_home
from streamlake.checkpoint.table_note import Calls
from streamlake.commit.findings import torn_log
from streamlake.commit.lineage import CatalogOption, RecoverCommand, explained
from streamlake.commit.marker import parsed_property, property_name
from streamlake.commit.offset_summary import source_offsets, table_offset
from streamlake.commit.unnamed import has_unnamed
from streamlake.errors import SourceError, StreamlakeError, TableNotFoundError
from streamlake.operate.check.check_points import Points
from streamlake.operate.check.sink_check import SinkPlan
from streamlake.operate.checkpoint_directory import started_directory
from streamlake.pipeline.direct.offset_log import require_tick
from streamlake.pipeline.sinks.bound_directory import own_findings
from streamlake.pipeline.sinks.bound_tables import BoundTables, tables_finding, template_command
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.source.offsets import SourceOffsets
from streamlake.storage.locations import table_location
from streamlake.storage.write_access import require_writable
from streamlake.table.table import Table
from streamlake.tasks.table_names import TableNames

CHECKPOINT = "checkpoint"
LINEAGE = "lineage"


def opened_directory(
    location: str, catalog: CatalogOption, points: Points
) -> tuple[SparkDirectory | None, bool]:
    """The directory, if a query was started there, and whether it could be read."""
    try:
        require_writable(table_location(location), checkpoint_properties(location, catalog))
        directory = started_directory(location, catalog)
        if directory is None:
            points.right(CHECKPOINT, f"{location} can be written; no query has been started from it yet")
            return None, True
        planned, completed, torn = directory.last_planned, directory.last_completed, directory.torn
    except StreamlakeError as error:
        points.error(CHECKPOINT, str(error))
        return None, False
    points.right(
        CHECKPOINT,
        f"{location} can be written; job {directory.job_id}, last checkpoint planned {planned}, done "
        f"{completed}",
    )
    if torn and local_home(directory.location) is not None:
        points.warning(
            CHECKPOINT,
            f"{torn_log(directory.location, torn).found}. The start deletes them, and their checkpoints are "
            "run again",
        )
    elif torn:
        command = RecoverCommand("TABLE", "TABLE:", checkpoint_location=directory.location)
        points.error(CHECKPOINT, explained(torn_log(directory.location, torn), command))
    return directory, True


def known_offsets(directory: SparkDirectory, points: Points) -> tuple[SourceOffsets | None, bool]:
    """The offsets that a Kafka source continues from, and whether they could be read.

    They are None before the first checkpoint.
    """
    texts = _logged_offsets(directory, points)
    if texts is None:
        return None, False
    known = source_offsets(texts) if texts else None
    if texts and known is None:
        points.error(
            CHECKPOINT, f"{directory.location} is of a query with another source; give a directory of its own"
        )
    return known, known is not None or not texts


class LoggedPosition(NamedTuple):
    """Where a stream over a table goes on: after `end` (None: it has not begun yet).

    With `is_due` the micro-batch from `before` (None: the stream's beginning) to `end` has to run first.
    """

    end: TableOffset | None
    before: TableOffset | None = None
    is_due: bool = False


def logged_position(directory: SparkDirectory, points: Points) -> LoggedPosition | None:
    """Where a table as a source is read on; None where that could not be read, which is an error."""
    texts = _logged_offsets(directory, points)
    if texts is None:
        return None
    if not texts:
        return LoggedPosition(None)
    try:
        end = TableOffset.from_json(json.loads(texts[0]) if len(texts) == 1 else texts)
    except (ValueError, SourceError) as error:
        points.error(CHECKPOINT, f"{directory.location}: {error}")
        return None
    if directory.last_planned <= directory.last_completed:
        return LoggedPosition(end)
    before = directory.end_offsets(directory.last_planned - 1) or ()
    return LoggedPosition(end, table_offset(before), is_due=True)


def _logged_offsets(directory: SparkDirectory, points: Points) -> tuple[str, ...] | None:
    """The texts of the newest checkpoint of a query on the direct path; None where that is an error."""
    try:
        newest = f"offsets/{directory.last_planned}"
        log = directory.text(newest)
        if log is not None:
            require_tick(log, f"{directory.location}/{newest}")
        return directory.end_offsets(directory.last_planned) or ()
    except StreamlakeError as error:
        points.error(CHECKPOINT, str(error))
        return None


def check_tables(
    tables: BoundTables,
    names: TableNames,
    catalog: CatalogOption,
    directory: SparkDirectory | None,
    points: Points,
) -> None:
    """Check that the directory of a query of many tables belongs to these tables."""
    if directory is None:
        return
    with points.errors(LINEAGE):
        found = tables_finding(directory, tables, names, catalog)
        if found is not None:
            command = template_command(tables.table, tables.branch, catalog, directory.location)
            points.error(LINEAGE, explained(found, command))


def check_lineage(
    plan: SinkPlan,
    table: Table | None,
    directory: SparkDirectory | None,
    location: str,
    points: Points,
    calls: Calls = Calls.EVERY,
) -> None:
    """Check that the table (None: there is none) and the directory agree on the pipeline."""
    if directory is None:
        if table is not None:
            with points.errors(LINEAGE):
                _check_new(plan, table, location, points)
        return
    try:
        found, command = own_findings(directory, plan, lambda: _found(plan, table), calls)
    except StreamlakeError as error:
        points.error(LINEAGE, str(error))
        return
    for finding in found:
        points.error(LINEAGE, explained(finding, command))
    if not found and table is not None:
        points.right(LINEAGE, f"{command.table} and the checkpoint directory agree")


def _check_new(plan: SinkPlan, table: Table, location: str, points: Points) -> None:
    """Check whether a stream from a new directory would be taken for one that the table knows."""
    name = plan.pipeline
    if name is None:
        if has_unnamed(table.metadata, plan.branch):
            points.warning(
                LINEAGE,
                f"{table.location} holds rows of a stream without a name, this one has none either, and "
                f"{location} is new: where both read the same records, the start will be refused. Give the "
                "pipeline a name (`name:`), or the directory of that stream",
            )
        return
    recorded = parsed_property(table.metadata, property_name(name, plan.branch))
    if recorded is not None:
        points.error(
            LINEAGE,
            f"pipeline '{name}' last wrote {table.location} as job {recorded.marker.job_id} (checkpoint "
            f"{recorded.marker.checkpoint_id}), but {location} is new: the start will be "
            "refused. Restore the old directory, start under another pipeline name, or "
            "start once and choose one of the ways out that the error lists",
        )


def _found(plan: SinkPlan, table: Table | None) -> Table:
    if table is None:
        raise TableNotFoundError(f"there is no table {plan.table}")
    return table
