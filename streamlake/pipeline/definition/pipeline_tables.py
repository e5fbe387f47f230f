"""The tables that a pipeline file writes, each with its settings, for commands that do not run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.definition.pipeline_file import KafkaSettings, Pipeline
from streamlake.pipeline.sinks.bound_tables import BoundTables
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.tasks.table_names import ROUTE, TableNames

_OF_MANY = ("tables", "route", "default_table", "max_tables", "on_table_failure")


@dataclass(frozen=True)
class PipelineTable:
    """One table, the arguments of its IcebergSink, and the topics that feed it (None: the source's)."""

    table: str
    arguments: Mapping[str, Any]
    topics: tuple[str, ...] | None = None


def is_by_row(pipeline: Pipeline) -> bool:
    """Whether the tables' names come from the rows of the topics, not from the topics alone."""
    return _names(pipeline).by_row if isinstance(pipeline.source, KafkaSettings) else False


def bound_tables(pipeline: Pipeline) -> tuple[BoundTables, TableNames]:
    """What the checkpoint directory of a pipeline with many tables records of them, and the tables' names."""
    arguments = pipeline.sink.arguments
    branch = str(arguments.get("branch", MAIN_BRANCH))
    return BoundTables(pipeline.sink.table, branch, arguments.get("default_table")), _names(pipeline)


def pipeline_tables(
    pipeline: Pipeline, topics: Iterable[str] = (), named: Mapping[str, str] | None = None
) -> tuple[PipelineTable, ...]:
    """The table of the pipeline; for a template the tables of `topics`, sorted by name.

    Where rows name the tables, `named` are the discovered tables, each with its template (see
    `discovered_tables`). Raises InvalidOptionError for a topic that gives no table name, and where rows name
    the tables and `named` is None.
    """
    sink = pipeline.sink
    if not sink.is_many or not isinstance(pipeline.source, KafkaSettings):
        return (PipelineTable(sink.table, sink.arguments),)
    names = _names(pipeline)
    found: dict[str, list[str]] = {}
    for topic in sorted(set(topics)):
        found.setdefault(names.of(topic), []).append(topic)
    if names.by_row:
        if named is None:
            raise InvalidOptionError(
                f"the tables of '{sink.table}' are named by rows, so the pipeline file does not list them: "
                "name the table"
            )
        found = {name: found.get(template, []) for name, template in named.items()}
    common = {
        "create": True,
        **{name: value for name, value in sink.arguments.items() if name not in _OF_MANY},
    }
    own = sink.arguments.get("tables", {})
    return tuple(
        PipelineTable(name, {**common, **own.get(name, {})}, tuple(of)) for name, of in sorted(found.items())
    )


def _names(pipeline: Pipeline) -> TableNames:
    source, sink = pipeline.source, pipeline.sink
    pattern = source.topic_pattern if isinstance(source, KafkaSettings) else None
    return TableNames(sink.table, pattern, has_route=ROUTE in sink.arguments)
