"""Everything that a pipeline needs, looked at before it is started: what `streamlake check` shows.

    file -> java -> topics -> table -> registry -> records -> checkpoint directory -> lineage -> offsets

Nothing is started, created or kept. Invariant: each point asks what the running pipeline would ask, by the same code, so
what is right here is not refused there a moment later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from streamlake.errors import StreamlakeError
from streamlake.pipeline.check_points import Points
from streamlake.pipeline.directory_check import check_lineage, known_offsets, opened_directory
from streamlake.pipeline.pipeline_file import (
    FilesSettings,
    KafkaSettings,
    Pipeline,
    SinkSettings,
    load_pipeline,
)
from streamlake.pipeline.pipeline_source import impatient, kafka_source
from streamlake.pipeline.registry_check import FORMATS, check_registry
from streamlake.pipeline.sampled_schema import with_inferred_schema
from streamlake.pipeline.session import check_java, under_spark_submit
from streamlake.pipeline.sink_check import SinkPlan, check_creation, check_table, found_table
from streamlake.pipeline.topic_check import check_offsets, check_records, check_topics
from streamlake.pipeline.upsert_options import with_row_kind
from streamlake.records import ROW_KIND
from streamlake.source.cluster import Cluster, KafkaCluster, Topics
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.ddl import parse_ddl
from streamlake.spec.schema import Schema
from streamlake.table.table import Table

FILE = "file"
JAVA = "java"
FILES = "files"
SCHEMA = "schema"
MODE = "mode"

Prepare = Callable[[Pipeline], object]
"""Makes the pipeline's own parts, as a run would; raises what is wrong with their arguments."""


def check_pipeline(path: str, prepare: Prepare) -> Points:
    """Look at all that the pipeline in a file needs. What is wrong is a point; raises nothing of streamlake's own."""
    points = Points()
    try:
        pipeline = load_pipeline(path)
        prepare(pipeline)
    except StreamlakeError as error:
        points.error(FILE, str(error))
        return points
    points.right(FILE, f"{path} is right: into {pipeline.sink.table}, mode {_plan(pipeline).mode}")
    if not under_spark_submit():
        with points.errors(JAVA):
            points.right(JAVA, f"Java {check_java()}")
    source = pipeline.source
    if isinstance(source, KafkaSettings):
        topics = impatient(kafka_source(source))
        with KafkaCluster(topics) as cluster:
            _KafkaCheck(pipeline, topics, cluster, points).run()
        return points
    if isinstance(source, FilesSettings):
        _check_files(source, points)
    _check_other_source(pipeline, points)
    return points


@dataclass
class _KafkaCheck:
    """A pipeline on the direct path."""

    pipeline: Pipeline
    source: KafkaSource
    cluster: Cluster
    points: Points

    def run(self) -> None:
        topics = check_topics(self.source, self.cluster, self.points)
        plan = _plan(self.pipeline)
        if self.source.has_row_kinds:
            plan = replace(plan, row_kind=ROW_KIND)
            if not plan.is_keyed:
                self.points.error(
                    MODE,
                    f"the format '{self.source.format}' brings updates and deletes, which mode '{plan.mode}' cannot carry out; "
                    "set sink.mode: upsert",
                )
        table, is_known = found_table(plan, self.points)
        known = self._with_schema(plan, table, is_known and topics is not None)
        if table is not None:
            check_table(
                plan, table, None if self.source.schema is None else self.source.table_schema, self.points
            )
        elif is_known and known is not None and plan.create:
            check_creation(plan, known.table_schema, self.points)
        if topics is not None:
            self._check_values(plan, table, known, topics)
        self._check_directory(plan, table, topics is not None and not topics.missing)

    def _with_schema(self, plan: SinkPlan, table: Table | None, is_askable: bool) -> KafkaSource | None:
        """The source with the schema that it would have: its own, else the table's, else that of a sample."""
        try:
            if self.source.schema is not None:
                return self.source
            if table is not None:
                return self.source.with_schema(with_row_kind(table.schema, plan.row_kind))
            if is_askable:
                return with_inferred_schema(self.source)
        except StreamlakeError as error:
            self.points.error(SCHEMA, str(error))
        else:
            self.points.unknown(SCHEMA, "the columns are told by topic or table, which could not be asked")
        return None

    def _check_values(
        self, plan: SinkPlan, table: Table | None, known: KafkaSource | None, topics: Topics
    ) -> None:
        if self.source.format in FORMATS:
            columns = None
            if table is not None:
                columns = self.source.with_schema(with_row_kind(table.schema, plan.row_kind)).schema
            check_registry(self.source, {topic for topic, _ in topics.partitions}, columns, self.points)
        if known is not None:
            check_records(known, self.cluster, topics, plan.key, self.points)

    def _check_directory(self, plan: SinkPlan, table: Table | None, is_answered: bool) -> None:
        location = self.pipeline.checkpoint
        directory, is_readable = opened_directory(location, self.points)
        if not is_readable:
            return
        if table is not None:
            check_lineage(plan, table, directory, location, self.points)
        at, is_told = (None, True) if directory is None else known_offsets(directory, self.points)
        if is_answered and is_told:
            check_offsets(self.source, self.cluster, at, self.points)


def _check_other_source(pipeline: Pipeline, points: Points) -> None:
    """A pipeline whose rows come through Spark: what its columns are, only Spark can tell."""
    plan = _plan(pipeline)
    source = pipeline.source
    stream: Schema | None = None
    if isinstance(source, FilesSettings) and source.schema is not None and not pipeline.select:
        with points.errors(SCHEMA):
            stream = parse_ddl(source.schema)
    table, is_known = found_table(plan, points)
    if table is not None:
        check_table(plan, table, stream, points)
    elif is_known and plan.create and stream is not None:
        check_creation(plan, stream, points)
    elif is_known and plan.create:
        points.unknown(SCHEMA, "the table's columns are those that Spark finds when the pipeline starts")
    directory, is_readable = opened_directory(pipeline.checkpoint, points)
    if is_readable and table is not None:
        check_lineage(plan, table, directory, pipeline.checkpoint, points)


def _check_files(source: FilesSettings, points: Points) -> None:
    if "://" in source.path:
        points.unknown(FILES, f"{source.path} is asked for by Spark when the pipeline starts")
        return
    path = Path(source.path)
    if not path.is_dir():
        points.error(FILES, f"{path} is no directory; create it, or correct source.files.path")
        return
    first = next((each for each in path.iterdir() if not each.name.startswith((".", "_"))), None)
    if first is None and source.schema is None:
        points.error(
            FILES,
            f"{path} is empty, so no schema can be inferred; give source.files.schema, or put a first file there",
        )
    else:
        points.right(FILES, f"{path} is there" + (", and empty yet" if first is None else ""))


def _plan(pipeline: Pipeline) -> SinkPlan:
    return _plan_of(pipeline.sink, pipeline.name)


def _plan_of(sink: SinkSettings, pipeline: str | None) -> SinkPlan:
    known = {each.name for each in fields(SinkPlan)}
    given = {name: value for name, value in sink.arguments.items() if name in known}
    return SinkPlan(**{**given, "table": sink.table, "pipeline": pipeline})
