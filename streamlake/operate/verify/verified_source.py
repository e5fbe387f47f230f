"""Resolves the source for `streamlake verify`, from command-line arguments or from a pipeline file.

kafka://broker:9092/orders                  a topic
table:db.orders, /lake/orders               another table
parquet:/exports/2024, /exports/*.parquet   Parquet files
--pipeline orders.yaml                      the pipeline's source
--postgres DSN                              a table of a database; with --pipeline, all of its tables
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamlake.catalog.open import CatalogOption
from streamlake.errors import InvalidOptionError, TableNotFoundError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.operate.verify.postgres_table import PostgresTable
from streamlake.operate.verify.verification import MODES
from streamlake.pipeline.definition.pipeline_file import FilesSettings, KafkaSettings, Pipeline
from streamlake.pipeline.definition.pipeline_source import kafka_source, with_short_timeout
from streamlake.pipeline.definition.pipeline_tables import is_by_row, pipeline_tables
from streamlake.pipeline.definition.running import first_line
from streamlake.pipeline.runs.evolution import EvolutionOptions
from streamlake.pipeline.sinks.arguments.default_sequence import named_sequence
from streamlake.records import ROW_KIND
from streamlake.source.cluster import KafkaCluster
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from streamlake.tables import LoadedTable, load_table

_KAFKA = re.compile(r"kafka://([^/]+)/(.+)")
_GLOB = re.compile(r"[*?\[{]")


def named_source(
    text: str,
    session: Callable[[], SparkSession],
    *,
    catalog: CatalogOption = None,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
) -> KafkaSource | LoadedTable | DataFrame:
    """The source of this name.

    `session` is only called where Spark reads the source. `schema` and `options` are a topic's, `catalog`
    another table's. Raises InvalidOptionError, TableNotFoundError.
    """
    kafka = _KAFKA.fullmatch(text)
    if kafka is not None:
        return KafkaSource(kafka[1], kafka[2], schema=schema, options=options or {})
    if schema is not None or options:
        raise InvalidOptionError(f"--schema and --option belong to a topic, not to {text}")
    if catalog is not None or text.startswith("table:"):
        return load_table(text.removeprefix("table:"), catalog)
    path = text.removeprefix("parquet:")
    if path == text and not path.endswith(".parquet") and not _GLOB.search(path):
        try:
            return load_table(path)
        except TableNotFoundError:
            if "://" not in path and not os.path.exists(path):
                raise InvalidOptionError(
                    f"there is neither a table nor a file at {path}; a source is kafka://SERVERS/TOPIC, a "
                    "table's location, table:NAME with --against-catalog, or parquet:PATH"
                ) from None
    absolute = path if "://" in path else os.path.abspath(path)
    try:
        frame: DataFrame = session().read.parquet(absolute)
        return frame
    except AnalysisException as error:
        raise InvalidOptionError(f"{path} cannot be read as Parquet: {first_line(error)}") from error


def pipeline_arguments(pipeline: Pipeline, path: str) -> dict[str, Any]:
    """The arguments of `verify` in a pipeline file, but for the source: table, catalog, mode, key etc."""
    given = pipeline.sink.arguments
    mode = given.get("mode", "append")
    if mode not in MODES:
        raise InvalidOptionError(
            f"{path}: a table in mode '{mode}' holds its last checkpoint only; it cannot be verified"
        )
    arguments = {"table": pipeline.sink.table, "mode": mode, "name": f"the source of {path}"}
    for name in ("catalog", "key", "sequence_by", "row_kind", "branch"):
        if given.get(name):
            arguments[name] = given[name]
    if not named_sequence(arguments.get("sequence_by")):
        arguments.pop("sequence_by", None)
    return arguments


def postgres_tables(pipeline: Pipeline, path: str, dsn: str) -> list[tuple[dict[str, Any], PostgresTable]]:
    """The arguments of `verify` for each table of a pipeline, with the database table that its topic follows.

    A topic of Debezium ends with the names of schema and table. Raises InvalidOptionError, SourceError.
    """
    topics: list[str] = []
    if isinstance(pipeline.source, KafkaSettings):
        with KafkaCluster(with_short_timeout(kafka_source(pipeline.source))) as cluster:
            topics = sorted({topic for topic, _ in cluster.topics().partitions})
    found = []
    for each in pipeline_tables(pipeline, topics):
        names = {
            ".".join(topic.split(".")[-2:]) for topic in (topics if each.topics is None else each.topics)
        }
        if len(names) != 1:
            described = f"of the topics {', '.join(sorted(names))}" if names else "of no topic"
            raise InvalidOptionError(
                f"{path}: {each.table} is the table {described}, so it is not one table of a database; "
                "verify it by itself, with --postgres-table"
            )
        arguments = {
            name: each.arguments[name] for name in ("catalog", "key", "branch") if each.arguments.get(name)
        }
        found.append(({"table": each.table, **arguments}, PostgresTable(dsn, names.pop())))
    return found


def following(
    source: KafkaSource | IcebergSource | DataFrame, pipeline: Pipeline, table: Table
) -> KafkaSource | IcebergSource | DataFrame:
    """The source with the table's columns in place of those in the pipeline file, where the table's schema
    has followed the stream's and has columns now that the file does not name.
    """
    if not isinstance(source, KafkaSource) or source.schema is None:
        return source
    given = pipeline.sink.arguments
    evolution = EvolutionOptions.of(given.get("schema_evolution"), None, table.properties)
    declared, has = {*source.table_schema.column_names} - {ROW_KIND}, set(table.schema.column_names)
    if evolution.is_on and not given.get("rename_columns") and declared < has:
        return replace(source, schema=None)
    return source


def pipeline_source(
    pipeline: Pipeline, session: Callable[[], SparkSession], path: str
) -> KafkaSource | IcebergSource | DataFrame:
    """Everything that the pipeline's source has ever delivered, as far as it still exists."""
    source = pipeline.source
    if is_by_row(pipeline):
        raise InvalidOptionError(
            f"{path}: rows name the tables of '{pipeline.sink.table}', and its topics are not compared with "
            "one of them; give what this table is to hold with --against"
        )
    if isinstance(source, KafkaSettings):
        return kafka_source(source)
    if isinstance(source, IcebergSource):
        return source
    if not isinstance(source, FilesSettings):
        raise InvalidOptionError(
            f"{path}: a rate source makes up its rows, so there is nothing to compare with"
        )
    reader = session().read.format(source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(from_arrow_schema(schema_to_arrow(parse_ddl(source.schema))))
    files = source.path if "://" in source.path else str(Path(source.path).absolute())
    try:
        frame: DataFrame = reader.load(files)
        frame = frame.where(pipeline.where) if pipeline.where else frame
        return frame.selectExpr(*pipeline.select) if pipeline.select else frame
    except AnalysisException as error:
        raise InvalidOptionError(f"{path}: {first_line(error)}") from error
