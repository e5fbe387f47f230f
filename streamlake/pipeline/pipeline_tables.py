"""The tables that a pipeline file writes, each with its own settings: what commands look at without running the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamlake.pipeline.pipeline_file import KafkaSettings, Pipeline
from streamlake.pipeline.table_names import TableNames


@dataclass(frozen=True)
class PipelineTable:
    """One table, the arguments of its IcebergSink, and the topics that go into it (None: all that the source has)."""

    table: str
    arguments: Mapping[str, Any]
    topics: tuple[str, ...] | None = None


def pipeline_tables(pipeline: Pipeline, topics: Iterable[str] = ()) -> tuple[PipelineTable, ...]:
    """The table of the pipeline; of one with a template those of `topics`, by name. Raises InvalidOptionError for a topic
    that gives no table."""
    sink = pipeline.sink
    if not sink.is_many or not isinstance(pipeline.source, KafkaSettings):
        return (PipelineTable(sink.table, sink.arguments),)
    names = TableNames(sink.table, pipeline.source.topic_pattern)
    found: dict[str, list[str]] = {}
    for topic in sorted(set(topics)):
        found.setdefault(names.of(topic), []).append(topic)
    common = {"create": True, **{name: value for name, value in sink.arguments.items() if name != "tables"}}
    own = sink.arguments.get("tables", {})
    return tuple(
        PipelineTable(name, {**common, **own.get(name, {})}, tuple(of)) for name, of in sorted(found.items())
    )
