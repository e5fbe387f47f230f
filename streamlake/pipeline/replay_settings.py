"""What a pipeline file says to a replay of rejects: which tables, and the settings that their records are read with today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion
from streamlake.pipeline.pipeline_file import KafkaSettings, Pipeline
from streamlake.pipeline.pipeline_source import kafka_source
from streamlake.pipeline.pipeline_tables import pipeline_tables
from streamlake.pipeline.replay import ReplayedTable
from streamlake.source.kafka_source import KafkaSource

_TAKEN = ("catalog", "mode", "key", "sequence_by", "row_kind", "delete_mode", "branch")


def replayed_tables(pipeline: Pipeline, path: str, table: str | None = None) -> list[ReplayedTable]:
    """The tables of the pipeline in the file `path` whose rejects may be replayed; only `table` where it is named.

    Raises InvalidOptionError for a pipeline without a Kafka source, for a table that is not one of its tables, and where
    the tables of a pipeline of many are not known without the broker.
    """
    source = pipeline.source
    if not isinstance(source, KafkaSettings):
        raise InvalidOptionError(f"{path}: only a kafka source has records to reject and to replay")
    sink = pipeline.sink
    if not sink.is_many:
        if table not in (None, sink.table):
            raise InvalidOptionError(f"{path} writes the table '{sink.table}', not '{table}'")
        return [_replayed(pipeline.name, sink.table, sink.arguments, kafka_source(source))]
    known = pipeline_tables(pipeline, source.topics)
    if table is None:
        if not source.topics:
            raise InvalidOptionError(
                f"{path} writes a table for every topic that its pattern matches; name the one whose rejects are meant with "
                "--table"
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
    # Whatever topic a table's rejects come from, it is one that goes into this table.
    every = replace(kafka_source(source), topics=None, topic_pattern=".*")
    return [_replayed(pipeline.name, name, arguments, every) for name, arguments in chosen.items()]


def _replayed(
    name: str | None, table: str, arguments: Mapping[str, Any], source: KafkaSource
) -> ReplayedTable:
    given = {key: arguments[key] for key in _TAKEN if arguments.get(key) is not None}
    return ReplayedTable(table, source, name, **given)
