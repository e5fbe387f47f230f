"""The tables that a pipeline has written so far, with their rejects: targets of `streamlake maintain`.

Neither Spark nor the broker is asked: a pipeline of many tables has recorded in its checkpoint directory what
it has read. Invariant: nothing is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.catalog.open import CatalogOption, open_table
from streamlake.commit.offset_summary import kafka_offsets
from streamlake.errors import TableNotFoundError
from streamlake.operate.checkpoint_directory import started_directory
from streamlake.pipeline.definition.pipeline_file import Pipeline
from streamlake.pipeline.definition.pipeline_tables import is_by_row, pipeline_tables
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.table import Table


@dataclass(frozen=True)
class UpkeepTarget:
    """A table under the name that the pipeline has for it, opened, and the branch that is written."""

    name: str
    table: Table
    branch: str = MAIN_BRANCH


def upkeep_targets(pipeline: Pipeline) -> list[UpkeepTarget]:
    """The tables of a pipeline that there are.

    Raises InvalidOptionError, and the errors of reaching the checkpoint directory or a table.
    """
    topics, named = _recorded(pipeline)
    found = []
    for each in pipeline_tables(pipeline, topics, named):
        catalog: CatalogOption = each.arguments.get("catalog")
        try:
            table = open_table(each.table, catalog)
        except TableNotFoundError:
            continue
        found.append(UpkeepTarget(each.table, table, each.arguments.get("branch", MAIN_BRANCH)))
        rejects = open_rejects(each.table, catalog)
        if rejects is not None:
            found.append(UpkeepTarget(rejects.name, rejects))
    return found


def _recorded(pipeline: Pipeline) -> tuple[list[str], Mapping[str, str] | None]:
    """The topics that were read, and where rows name the tables, what they named."""
    if not pipeline.sink.is_many:
        return [], None
    directory = started_directory(pipeline.checkpoint, pipeline.sink.arguments.get("catalog"))
    if directory is None:
        return [], {} if is_by_row(pipeline) else None
    logged = kafka_offsets(directory.end_offsets(directory.last_planned) or ())
    text = directory.text(TABLES_PATH)
    named = {} if text is None else tables_from_text(text, TABLES_PATH)
    return sorted({topic for topic, _ in logged or {}}), named if is_by_row(pipeline) else None
