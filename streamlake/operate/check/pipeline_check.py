"""Checks everything that a pipeline needs before it is started: the work of `streamlake check`.

    file -> java -> topics -> table -> registry -> records -> checkpoint directory -> lineage -> offsets

Of a table that is read, its own check takes the place of topics, registry and records.

Nothing is started, created or kept. Invariant: each point is decided by the same code as in the running
pipeline, so that what is right here is not refused there a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.table_note import Calls
from streamlake.errors import StreamlakeError
from streamlake.operate.check.check_points import Points, Verdict
from streamlake.operate.check.connector_check import check_connector
from streamlake.operate.check.directory_check import (
    CHECKPOINT,
    LoggedPosition,
    check_lineage,
    check_tables,
    known_offsets,
    logged_position,
    opened_directory,
)
from streamlake.operate.check.sink_check import (
    SCHEMA,
    TABLE,
    SinkPlan,
    check_creation,
    check_table,
    check_unknown_creation,
    found_table,
)
from streamlake.operate.check.stream_check import REJECTS, TableOnTopics
from streamlake.operate.check.table_source_check import TableSourceCheck
from streamlake.operate.check.topic_check import check_offsets, check_topics
from streamlake.operate.checkpoint_directory import started_directory
from streamlake.pipeline.definition.file_words import in_file_words
from streamlake.pipeline.definition.pipeline_file import (
    FilesSettings,
    KafkaSettings,
    Pipeline,
    RateSettings,
    load_pipeline,
)
from streamlake.pipeline.definition.pipeline_source import kafka_source, with_short_timeout
from streamlake.pipeline.definition.pipeline_tables import bound_tables, is_by_row, pipeline_tables
from streamlake.pipeline.kafka.sampled_schema import with_inferred_schema
from streamlake.pipeline.runs.rejects import require_records
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.pipeline.spark.session import MINIMUM_JAVA, check_java, java_major, under_spark_submit
from streamlake.source.cluster import Cluster, KafkaCluster
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.tasks.row_names import RowRoute, imported_route, route_name
from streamlake.tasks.table_names import ROUTE, unused_settings

ROUTES = "routes"


FILE = "file"
JAVA = "java"
FILES = "files"
RATE_COLUMNS = "timestamp timestamp, value long"
"""The columns of Spark's rate source."""
Prepare = Callable[[Pipeline], object]
"""Makes the pipeline's own parts, as a run would. Raises what is wrong with their arguments."""


def check_routes(pipeline: Pipeline, source: KafkaSource, points: Points) -> None:
    """Check what fills the placeholders of a pipeline whose rows name its tables.

    Where no schema is given, the fields come from a sample.
    """
    with points.errors(ROUTES):
        name = pipeline.sink.arguments.get(ROUTE)
        function = None if name is None else imported_route(name)
        route = RowRoute(pipeline.sink.table, function)
        if route.fields:
            route.check(with_inferred_schema(source).table_schema)
        origins = [f"the field {'.'.join(path)}" for path in route.fields.values()]
        origins += [] if function is None else [f"the function {route_name(function)}"]
        points.right(ROUTES, f"rows name their tables by {' and '.join(origins)}")


def check_pipeline(path: str, prepare: Prepare) -> Points:
    """Check everything that the pipeline in a file needs.

    Whatever is wrong becomes a point; none of streamlake's own errors is raised.
    """
    points = Points()
    _check(path, prepare, points)
    points.found = [replace(each, message=in_file_words(each.message)) for each in points.found]
    return points


def _check(path: str, prepare: Prepare, points: Points) -> None:
    try:
        pipeline = load_pipeline(path)
        prepare(pipeline)
    except StreamlakeError as error:
        points.error(FILE, str(error))
        return
    points.right(FILE, f"{path} is right: into {pipeline.sink.table}, mode {_mode(pipeline)}")
    if not under_spark_submit():
        with points.errors(JAVA):
            version = java_major(check_java())
            points.right(JAVA, f"Java {version} is there; Spark needs {MINIMUM_JAVA} or newer")
    check_connector(pipeline.checkpoint, pipeline.spark.config, CHECKPOINT, points)
    source = pipeline.source
    if isinstance(source, KafkaSettings):
        topics = with_short_timeout(kafka_source(source))
        with KafkaCluster(topics) as cluster:
            _KafkaCheck(pipeline, topics, cluster, points).run()
        return
    if isinstance(source, IcebergSource):
        _check_table_to_table(pipeline, source, points)
        return
    if isinstance(source, FilesSettings):
        _check_files(source, points)
    _check_other_source(pipeline, points)


@dataclass
class _KafkaCheck:
    """The check of a pipeline on the direct path."""

    pipeline: Pipeline
    source: KafkaSource
    cluster: Cluster
    points: Points

    def run(self) -> None:
        found = check_topics(self.source, self.cluster, self.points)
        names = {topic for topic, _ in found.partitions} if found is not None else self.source.topics or ()
        try:
            members = pipeline_tables(self.pipeline, names, self._named())
        except StreamlakeError as error:
            self.points.error(TABLE, str(error))
            members = ()
        self._check_own_used([member.table for member in members])
        opened: list[tuple[SinkPlan, Table | None]] = []
        for member in members:
            if member.topics == ():
                continue  # rows have named it, but no topic that is read now can feed it
            points = Points()
            plan = SinkPlan.of(member.table, member.arguments, self.pipeline.name)
            source, part = self.source, found
            if member.topics is not None:
                source = replace(source, topics=member.topics, topic_pattern=None)
                part = None if found is None else found.only(member.topics)
            table = TableOnTopics(plan, source, part, self.cluster, points).check()
            if table is not None or all(each.verdict is not Verdict.ERROR for each in points.found):
                opened.append((plan, table))
            self._keep(points, member.table if self.pipeline.sink.is_many else None)
        self._check_directory(opened, found is not None and not found.missing)

    def _check_own_used(self, tables: Sequence[str]) -> None:
        """Settings of single tables must be of tables that there are; a pattern's topics may come later."""
        sink = self.pipeline.sink
        if not sink.is_many or not tables or is_by_row(self.pipeline):
            return
        for name in sink.arguments.get("tables", {}):
            if name in tables:
                continue
            may_come = self.source.topics is None and bound_tables(self.pipeline)[1].may_be(name)
            report = self.points.warning if may_come else self.points.error
            report(TABLE, f"sink.{unused_settings(name, tables)}")

    @property
    def _catalog(self) -> CatalogOption:
        return cast(CatalogOption, self.pipeline.sink.arguments.get("catalog"))

    def _named(self) -> dict[str, str] | None:
        """The tables that rows have named; None where topics name them. Also checks what names them."""
        if not is_by_row(self.pipeline):
            return None
        check_routes(self.pipeline, self.source, self.points)
        named: str | None = None
        try:
            directory = started_directory(self.pipeline.checkpoint, self._catalog)
            named = None if directory is None else directory.text(TABLES_PATH)
        except StreamlakeError:
            named = None  # what is wrong with the directory is reported below
        if named is None:
            self.points.unknown(TABLE, "rows name the tables, and none has been named yet")
            return {}
        return tables_from_text(named, f"{self.pipeline.checkpoint}/{TABLES_PATH}")

    def _keep(self, points: Points, table: str | None) -> None:
        """Keep the points of one table.

        For an only table these are all of them; for one of many, those that are not right, and a summary of
        the rest.
        """
        if table is None:
            self.points.found += points.found
            return
        wrong = [point for point in points.found if point.verdict is not Verdict.RIGHT]
        self.points.found += [replace(point, message=_with_name(point.message, table)) for point in wrong]
        right = list(dict.fromkeys(point.about for point in points.found if point.verdict is Verdict.RIGHT))
        if right:
            self.points.right(TABLE, f"{table}: {', '.join(right)} as they should be")

    def _check_directory(self, opened: list[tuple[SinkPlan, Table | None]], is_answered: bool) -> None:
        location = self.pipeline.checkpoint
        directory, is_readable = opened_directory(location, self._catalog, self.points)
        if not is_readable:
            return
        is_many = self.pipeline.sink.is_many
        if is_many:
            bound, names = bound_tables(self.pipeline)
            check_tables(bound, names, self._catalog, directory, self.points)
        calls = Calls.QUERY if is_many else Calls.EVERY
        for plan, table in opened:
            check_lineage(plan, table, directory, location, self.points, calls)
        at, is_known = (None, True) if directory is None else known_offsets(directory, self.points)
        if is_answered and is_known:
            check_offsets(self.source, self.cluster, at, self.points)


def _with_name(message: str, table: str) -> str:
    return message if table in message else f"{table}: {message}"


def _check_table_to_table(pipeline: Pipeline, source: IcebergSource, points: Points) -> None:
    """Check a pipeline that reads a table on the direct path."""
    plan = SinkPlan.of(pipeline.sink.table, pipeline.sink.arguments, pipeline.name)
    own = TableSourceCheck.opened(source, points)
    table, is_known = found_table(plan, points)
    stream, plan = own.columns(plan, table)
    own.other_than(table, plan.branch)
    if table is not None:
        check_table(plan, table, stream, points)
    elif is_known and plan.create and stream is not None:
        check_creation(plan, stream, points)
    directory, is_readable = opened_directory(pipeline.checkpoint, plan.catalog, points)
    if not is_readable:
        return
    if is_known:
        check_lineage(plan, table, directory, pipeline.checkpoint, points)
    logged = LoggedPosition(None) if directory is None else logged_position(directory, points)
    if logged is not None:
        own.position(logged)


def _check_other_source(pipeline: Pipeline, points: Points) -> None:
    """Check a pipeline whose rows come through Spark; only Spark knows its columns."""
    plan = SinkPlan.of(pipeline.sink.table, pipeline.sink.arguments, pipeline.name)
    source = pipeline.source
    stream: Schema | None = None
    if isinstance(source, FilesSettings) and source.schema is not None and not pipeline.select:
        with points.errors(SCHEMA):
            stream = parse_ddl(source.schema)
    elif isinstance(source, RateSettings) and not pipeline.select:
        stream = parse_ddl(RATE_COLUMNS)
    with points.errors(REJECTS):
        require_records(plan.on_error)
    table, is_known = found_table(plan, points)
    if table is not None:
        check_table(plan, table, stream, points)
    elif is_known and plan.create and stream is not None:
        check_creation(plan, stream, points)
    elif is_known and plan.create:
        check_unknown_creation(plan, points)
        points.unknown(SCHEMA, "the table's columns are those that Spark finds when the pipeline starts")
    directory, is_readable = opened_directory(
        pipeline.checkpoint, pipeline.sink.arguments.get("catalog"), points
    )
    if is_readable and is_known:
        check_lineage(plan, table, directory, pipeline.checkpoint, points)


def _check_files(source: FilesSettings, points: Points) -> None:
    if "://" in source.path:
        points.unknown(FILES, f"{source.path} is checked by Spark when the pipeline starts")
        return
    path = Path(source.path)
    if not path.is_dir():
        points.error(FILES, f"{path} is not a directory; create it, or correct source.files.path")
        return
    first = next((each for each in path.iterdir() if not each.name.startswith((".", "_"))), None)
    if first is None and source.schema is None:
        points.error(
            FILES,
            f"{path} is empty, so no schema can be inferred; give source.files.schema, or put a first file "
            "there",
        )
    else:
        points.right(FILES, f"{path} is there" + (", and empty yet" if first is None else ""))


def _mode(pipeline: Pipeline) -> str:
    return str(pipeline.sink.arguments.get("mode", "append"))
