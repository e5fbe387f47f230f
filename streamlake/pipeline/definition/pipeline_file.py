"""Pipeline files (YAML), read into frozen values: one source, one sink, a checkpoint, a trigger.

Place in the flow: before the session starts, so that a mistake costs no Spark start. Keys are strict: an
unknown key is an InvalidOptionError with a suggestion. `${NAME}` and `${NAME:-default}` in any text are taken
from the environment, so that secrets stay out of the file; messages name keys and never show such values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.maintain.background.maintenance_settings import (
    ACTIONS_OPTION,
    COMPACT_OPTIONS,
    MaintenanceSettings,
    maintenance_options,
)
from streamlake.options import ShownFields, unknown_option
from streamlake.pipeline.definition.environment import substituted
from streamlake.pipeline.definition.file_section import Section
from streamlake.pipeline.definition.trigger_interval import require_interval
from streamlake.pipeline.definition.yaml_text import read_yaml
from streamlake.source.iceberg import iceberg_options
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import FORMATS
from streamlake.tasks.table_names import is_template
from streamlake.write.target.job_options import check_write_options

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text")
AVRO_SCHEMA_FILE = "avro.schema-file"
DEFAULT_TRIGGER = {"processingTime": "10 seconds"}


@dataclass(frozen=True, repr=False)
class KafkaSettings(ShownFields):
    """`source: kafka`. `options` are the KafkaSource's own, in kebab-case; the file that `avro.schema-file`
    names has been read into `avro.schema`.
    """

    bootstrap_servers: tuple[str, ...]
    topics: tuple[str, ...]
    topic_pattern: str | None
    schema: str | None
    format: str
    include: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True, repr=False)
class FilesSettings(ShownFields):
    """`source: files`: a directory of files, read by Spark's file stream. `options` are the reader's."""

    path: str
    format: str
    schema: str | None
    max_files_per_trigger: int | None
    options: Mapping[str, str]


@dataclass(frozen=True, repr=False)
class RateSettings(ShownFields):
    """`source: rate`: generated rows (`timestamp`, `value`), to try a table or a cluster."""

    rows_per_second: int
    options: Mapping[str, str]


@dataclass(frozen=True, repr=False)
class SinkSettings(ShownFields):
    """`sink`: the arguments of IcebergSink under the same names, with dashes; those of IcebergTables where
    the table's name has placeholders.
    """

    table: str
    arguments: Mapping[str, Any]

    @property
    def is_many(self) -> bool:
        """Whether `table` is a template, so that the pipeline writes many tables."""
        return is_template(self.table)


@dataclass(frozen=True, repr=False)
class SparkSettings(ShownFields):
    """`spark`: how the session is built; `config` holds Spark's own keys."""

    master: str | None = None
    log_level: str = "ERROR"
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline file. `select` and `where` are Spark SQL over the source's columns. `maintenance`: see
    MaintenanceSettings; it is on where the file does not mention it.
    """

    name: str | None
    source: KafkaSettings | IcebergSource | FilesSettings | RateSettings
    select: tuple[str, ...]
    where: str | None
    sink: SinkSettings
    checkpoint: str
    trigger: Mapping[str, Any]
    spark: SparkSettings
    maintenance: Mapping[str, Any] | bool = True

    @property
    def ends_by_itself(self) -> bool:
        """Whether the pipeline processes what is there and stops, or a table up to an end that is given."""
        has_end = isinstance(self.source, IcebergSource) and self.source.settings.has_end
        return has_end or "availableNow" in self.trigger


_NO_SQL = {
    KafkaSettings: "kafka source, whose records do not pass through SQL",
    IcebergSource: "iceberg source, whose rows do not pass through SQL; it has `columns` and `filter`, and a "
    "program can read it by spark.readStream.format('streamlake')",
}


def load_pipeline(path: str | Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline in a YAML file. Raises an InvalidOptionError that names the file and the key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOptionError(f"the pipeline file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidOptionError(f"the pipeline file {path} is not UTF-8 text") from error
    return parse_pipeline(text, str(path), environment)


def parse_pipeline(text: str, name: str, environment: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline in a YAML text; `name` stands for the text in messages. Raises InvalidOptionError."""
    content, lines = read_yaml(text, name)
    content = substituted(content, name, os.environ if environment is None else environment)
    root = Section(name, "", content, lines)
    root.only("name", "source", "select", "where", "sink", "checkpoint", "trigger", "maintenance", "spark")
    source = _source(root.section("source"))
    select, where = root.texts("select"), root.text("where")
    if isinstance(source, KafkaSettings | IcebergSource) and (select or where):
        key = "select" if select else "where"
        raise root.wrong(key, f"does not apply to the {_NO_SQL[type(source)]}")
    sink = _sink(root.section("sink"))
    if isinstance(source, IcebergSource):
        _check_table_to_table(sink, root.section("sink"))
    return Pipeline(
        name=root.text("name"),
        source=source,
        select=select,
        where=where,
        sink=sink,
        checkpoint=root.required_text("checkpoint"),
        trigger=_trigger(root),
        spark=_spark(root),
        maintenance=_maintenance(root),
    )


def _source(section: Section) -> KafkaSettings | IcebergSource | FilesSettings | RateSettings:
    kinds = ("kafka", "iceberg", "files", "rate")
    section.only(*kinds)
    given = [kind for kind in kinds if kind in section.content]
    if len(given) != 1:
        raise InvalidOptionError(f"{section.at()}: give exactly one of {', '.join(kinds)}")
    if given == ["kafka"]:
        return _kafka(section.section("kafka"))
    if given == ["iceberg"]:
        return _iceberg(section.section("iceberg"))
    if given == ["files"]:
        return _files(section.section("files"))
    return _rate(section.section("rate"))


def _kafka(kafka: Section) -> KafkaSettings:
    kafka.only("bootstrap-servers", "topics", "topic-pattern", "schema", "format", "include", "options")
    topics, pattern = kafka.texts("topics"), kafka.text("topic-pattern")
    if bool(topics) == bool(pattern):
        raise InvalidOptionError(f"{kafka.at()}: give either topics or topic-pattern")
    return KafkaSettings(
        bootstrap_servers=kafka.texts("bootstrap-servers", required=True),
        topics=topics,
        topic_pattern=pattern,
        schema=kafka.text("schema"),
        format=kafka.choice("format", FORMATS, "json"),
        include=kafka.texts("include"),
        options=_with_schema_file(kafka),
    )


def _with_schema_file(kafka: Section) -> dict[str, str]:
    """The options; a schema file is read here, because it may not exist where tasks run."""
    options = kafka.mapping("options")
    path = options.pop(AVRO_SCHEMA_FILE, None)
    if path is None:
        return options
    key = f"options.{AVRO_SCHEMA_FILE}"
    if "avro.schema" in options:
        raise kafka.wrong(key, "and avro.schema are both given; leave one out")
    try:
        options["avro.schema"] = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise kafka.wrong(key, f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise kafka.wrong(key, f"{path} is not UTF-8 text") from error
    return options


def _iceberg(iceberg: Section) -> IcebergSource:
    iceberg.only("table", "catalog", "filter", "columns", "options")
    if iceberg.content.get("options") is not None:
        iceberg.section("options").only(*(each.name for each in iceberg_options.PROPERTIES))
    table, options = iceberg.required_text("table"), iceberg.mapping("options")
    try:
        return IcebergSource(
            table,
            catalog=iceberg.text_or_mapping("catalog"),
            filter=iceberg.text("filter"),
            columns=iceberg.texts("columns") or None,
            options=options,
        ).as_stream(can_hold=True)
    except (InvalidOptionError, FeatureUnsupportedError) as error:
        text = str(error).removeprefix("IcebergSource: ")
        raise type(error)(f"{iceberg.at()}: {text}{iceberg.line(_meant(text, options))}") from error


def _meant(text: str, options: Mapping[str, str]) -> str:
    """The key that the message of an IcebergSource is about: the first option in it, columns, or filter."""
    found = {name: re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in options}
    named = sorted((match.start(), f"options.{name}") for name, match in found.items() if match)
    return named[0][1] if named else "columns" if text.startswith("columns") else "filter"


def _check_table_to_table(sink: SinkSettings, section: Section) -> None:
    """Raise InvalidOptionError for what a sink has for topics and records only."""
    if sink.is_many:
        raise section.wrong("table", f"is '{sink.table}', and a table as a source feeds one table: name it")
    if sink.arguments.get("on_error") == "reject":
        raise section.wrong(
            "on-error",
            "is reject, which keeps records of topics; rows of a table have been read once already: leave "
            "it out",
        )


def _files(files: Section) -> FilesSettings:
    files.only("path", "format", "schema", "max-files-per-trigger", "options")
    return FilesSettings(
        path=files.required_text("path"),
        format=files.choice("format", FILE_FORMATS, "parquet"),
        schema=files.text("schema"),
        max_files_per_trigger=files.integer("max-files-per-trigger"),
        options=files.mapping("options"),
    )


def _rate(rate: Section) -> RateSettings:
    rate.only("rows-per-second", "options")
    rows = rate.integer("rows-per-second")
    return RateSettings(rows_per_second=1_000 if rows is None else rows, options=rate.mapping("options"))


def _table_readers(sink: Section) -> dict[str, Callable[[str], Any]]:
    """The function that reads each setting of a table, by the setting's name in the file."""
    return {
        "mode": sink.text,
        "create": sink.flag,
        "partition-by": sink.texts,
        "sort-by": sink.texts,
        "format-version": sink.integer,
        "properties": sink.mapping,
        "key": sink.texts,
        "sequence-by": sink.texts,
        "row-kind": sink.text,
        "delete-mode": sink.text,
        "branch": sink.text,
        "max-continuous-empty-commits": sink.integer,
        "max-pending-checkpoints": sink.integer,
        "schema-evolution": sink.text,
        "rename-columns": sink.mapping,
        "on-error": sink.text,
        "max-rejects": sink.integer,
        "write-options": lambda key: _write_options(sink, key),
        "write-parallelism": sink.integer,
    }


def _write_options(sink: Section, key: str) -> dict[str, str]:
    options = sink.mapping(key)
    check_write_options(options, sink.at(key))
    return options


def _sink(sink: Section) -> SinkSettings:
    readers = _table_readers(sink)
    of_many: dict[str, Callable[[str], Any]] = {
        "on-table-failure": sink.text,
        "route": sink.text,
        "default-table": sink.text,
        "max-tables": sink.integer,
    }
    sink.only("table", "catalog", "tables", *of_many, *readers)
    arguments = _arguments(sink, {**readers, **of_many})
    if sink.content.get("catalog") is not None:
        arguments["catalog"] = sink.text_or_mapping("catalog")
    table = sink.required_text("table")
    for key in of_many:
        if key.replace("-", "_") in arguments and not is_template(table):
            raise sink.wrong(key, f"belongs to a sink of many tables, but '{table}' is one table")
    if sink.content.get("tables") is not None:
        own = _own_settings(sink.section("tables"))
        if own and not is_template(table):
            raise sink.wrong(
                "tables", f"describes single tables of a sink of many tables, but '{table}' is one table"
            )
        if own:
            arguments["tables"] = own
    return SinkSettings(table=table, arguments=arguments)


def _own_settings(tables: Section) -> dict[str, dict[str, Any]]:
    """The settings of single tables, by the tables' names."""
    found = {}
    for name in tables.content:
        own = tables.section(str(name))
        readers = _table_readers(own)
        own.only(*readers)
        found[str(name)] = _arguments(own, readers)
    return found


def _arguments(section: Section, readers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    return {
        key.replace("-", "_"): read(key)
        for key, read in readers.items()
        if section.content.get(key) is not None
    }


def _trigger(root: Section) -> Mapping[str, Any]:
    given = root.content.get("trigger")
    if given is None:
        return DEFAULT_TRIGGER
    if isinstance(given, str):
        if given != "available-now":
            raise unknown_option(
                given, ("available-now", "processing-time: 10 seconds"), f"{root.name}: trigger"
            )
        return {"availableNow": True}
    section = root.section("trigger")
    section.only("available-now", "processing-time")
    if len(section.content) != 1:
        raise root.wrong("trigger", "takes either available-now or processing-time")
    if "available-now" in section.content:
        if not section.flag("available-now"):
            raise section.wrong("available-now", "can only be true; leave it out otherwise")
        return {"availableNow": True}
    interval = section.required_text("processing-time")
    require_interval(interval, section.at("processing-time"))
    return {"processingTime": interval}


def _maintenance(root: Section) -> Mapping[str, Any] | bool:
    given = root.content.get("maintenance")
    if isinstance(given, Mapping):
        section = root.section("maintenance")
        section.only(*(each.name for each in maintenance_options()))
        given = {name: _maintenance_value(section, name) for name in section.content}
    elif isinstance(given, str):
        given = root.choice("maintenance", ("on", "off"), "on") == "on"
    elif given is not None and not isinstance(given, bool):
        raise root.mistyped("maintenance", "on, off or a mapping")
    try:
        MaintenanceSettings.of(given, root.at("maintenance"))
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{error}{root.line('maintenance')}") from None
    return True if given is None else given


def _maintenance_value(section: Section, name: str) -> tuple[str, ...] | str | int | None:
    if name == ACTIONS_OPTION:
        return section.texts(name)
    if name in COMPACT_OPTIONS:
        value = section.content[name]
        return str(value).lower() if isinstance(value, bool) else section.text(name)
    return section.integer(name)


def _spark(root: Section) -> SparkSettings:
    if root.content.get("spark") is None:
        return SparkSettings()
    spark = root.section("spark")
    spark.only("master", "log-level", "config")
    return SparkSettings(
        master=spark.text("master"),
        log_level=(spark.text("log-level") or "ERROR").upper(),
        config=spark.mapping("config"),
    )
