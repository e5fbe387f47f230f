"""The settings for a replay of rejects, from a pipeline file: the tables, and how records are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.operate.checkpoint_directory import existing_directory
from streamlake.operate.replay.replay import ReplayedTable
from streamlake.options import suggestion
from streamlake.pipeline.definition.pipeline_file import KafkaSettings, Pipeline
from streamlake.pipeline.definition.pipeline_source import kafka_source
from streamlake.pipeline.definition.pipeline_tables import is_by_row, pipeline_tables
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.source.kafka_source import KafkaSource
from streamlake.tasks.row_names import RowRoute, imported_route, unrouted_name
from streamlake.tasks.table_names import ROUTE, TableNames

_TAKEN = ("catalog", "mode", "key", "sequence_by", "row_kind", "delete_mode", "branch", "write_options")


def replayed_tables(pipeline: Pipeline, path: str, table: str | None = None) -> list[ReplayedTable]:
    """The tables of the pipeline in the file `path` whose rejects may be replayed.

    With `table`, only that one. Raises InvalidOptionError for a pipeline without a Kafka source, for a table
    that is not one of its tables, and where the tables of a pipeline of many are not known without the
    broker.
    """
    source = pipeline.source
    if not isinstance(source, KafkaSettings):
        raise InvalidOptionError(f"{path}: only a kafka source has records to reject and to replay")
    sink = pipeline.sink
    if not sink.is_many:
        if table not in (None, sink.table):
            raise InvalidOptionError(f"{path} writes the table '{sink.table}', not '{table}'")
        return [_replayed(pipeline.name, sink.table, sink.arguments, kafka_source(source))]
    if is_by_row(pipeline):
        return _named_by_row(pipeline, source, path, table)
    known = pipeline_tables(pipeline, source.topics)
    if table is None:
        if not source.topics:
            raise InvalidOptionError(
                f"{path} writes a table for every topic that its pattern matches; name the one whose rejects "
                "are meant with --table"
            )
        chosen = {each.table: each.arguments for each in known}
    elif source.topics:
        chosen = {each.table: each.arguments for each in known if each.table == table}
        if not chosen:
            names = [each.table for each in known]
            near = suggestion(table, names)
            hint = f"Did you mean '{near}'?" if near else f"Its tables are {', '.join(names)}."
            raise InvalidOptionError(f"{path} does not write the table '{table}'. {hint}")
    else:
        own: Mapping[str, Any] = sink.arguments.get("tables", {}).get(table, {})
        chosen = {table: {**sink.arguments, **own}}
    # Whatever topic a reject of the table comes from, it is one that feeds this table.
    every = replace(kafka_source(source), topics=None, topic_pattern=".*")
    return [_replayed(pipeline.name, name, arguments, every) for name, arguments in chosen.items()]


def _named_by_row(
    pipeline: Pipeline, source: KafkaSettings, path: str, table: str | None
) -> list[ReplayedTable]:
    """The table `table`, or all tables that rows have named so far.

    All of them where `table` is the one for records without a table, whose rejects may belong to any.
    """
    sink = pipeline.sink
    if table is None:
        raise InvalidOptionError(f"{path}: rows name the tables of '{sink.table}'; name one with --table")
    names = TableNames(sink.table, source.topic_pattern, has_route=ROUTE in sink.arguments)
    name = sink.arguments.get(ROUTE)
    function = None if name is None else imported_route(name)
    templates = dict.fromkeys(map(names.of, source.topics)) or {sink.table: None}
    routes = tuple(RowRoute(template, function) for template in templates)
    default = sink.arguments.get("default_table")
    every = replace(kafka_source(source), topics=None, topic_pattern=".*")
    own: Mapping[str, Mapping[str, Any]] = sink.arguments.get("tables", {})

    def replayed(target: str, rejects_of: str | None) -> ReplayedTable:
        return replace(
            _replayed(pipeline.name, target, {**sink.arguments, **own.get(target, {})}, every),
            routes=routes,
            keeps_unrouted=target == default,
            has_default=default is not None,
            rejects_of=rejects_of,
        )

    if table != default and table not in map(unrouted_name, templates):
        return [replayed(table, None)]
    directory = existing_directory(pipeline.checkpoint, sink.arguments.get("catalog"))
    text = directory.text(TABLES_PATH)
    known = [] if text is None else sorted(tables_from_text(text, f"{pipeline.checkpoint}/{TABLES_PATH}"))
    return [replayed(each, table) for each in known if each not in map(unrouted_name, templates)]


def _replayed(
    name: str | None, table: str, arguments: Mapping[str, Any], source: KafkaSource
) -> ReplayedTable:
    given = {key: arguments[key] for key in _TAKEN if arguments.get(key) is not None}
    return ReplayedTable(table, source, name, **given)
