"""Pipeline files (YAML), read into frozen values: one source, one sink, a checkpoint, a trigger.

Place in the flow: before the session starts, so that a mistake costs no Spark start. Keys are strict: an
unknown key is an InvalidOptionError with a suggestion. `${NAME}` and `${NAME:-default}` in any text are taken
from the environment, so that secrets stay out of the file; messages name keys and never show such values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from streamlake.errors import InvalidOptionError
from streamlake.options import ShownFields, check_option_names, suggestion, unknown_option
from streamlake.pipeline.definition.environment import substituted
from streamlake.pipeline.definition.trigger_interval import require_interval
from streamlake.pipeline.definition.yaml_text import Lines, kind_of, read_yaml
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
    """A whole pipeline file. `select` and `where` are Spark SQL over the source's columns."""

    name: str | None
    source: KafkaSettings | FilesSettings | RateSettings
    select: tuple[str, ...]
    where: str | None
    sink: SinkSettings
    checkpoint: str
    trigger: Mapping[str, Any]
    spark: SparkSettings

    @property
    def ends_by_itself(self) -> bool:
        """True for `trigger: available-now`: the pipeline processes what is there and stops."""
        return "availableNow" in self.trigger


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
    root = _Section(name, "", content, lines)
    root.only("name", "source", "select", "where", "sink", "checkpoint", "trigger", "spark")
    source = _source(root.section("source"))
    select, where = root.texts("select"), root.text("where")
    if isinstance(source, KafkaSettings) and (select or where):
        raise root.wrong(
            "select" if select else "where",
            "does not apply to the kafka source, whose records do not pass through SQL",
        )
    return Pipeline(
        name=root.text("name"),
        source=source,
        select=select,
        where=where,
        sink=_sink(root.section("sink")),
        checkpoint=root.required_text("checkpoint"),
        trigger=_trigger(root),
        spark=_spark(root),
    )


def _source(section: _Section) -> KafkaSettings | FilesSettings | RateSettings:
    kinds = ("kafka", "files", "rate")
    section.only(*kinds)
    given = [kind for kind in kinds if kind in section.content]
    if len(given) != 1:
        raise InvalidOptionError(f"{section.at()}: give exactly one of {', '.join(kinds)}")
    if given == ["kafka"]:
        return _kafka(section.section("kafka"))
    if given == ["files"]:
        return _files(section.section("files"))
    return _rate(section.section("rate"))


def _kafka(kafka: _Section) -> KafkaSettings:
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


def _with_schema_file(kafka: _Section) -> dict[str, str]:
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


def _files(files: _Section) -> FilesSettings:
    files.only("path", "format", "schema", "max-files-per-trigger", "options")
    return FilesSettings(
        path=files.required_text("path"),
        format=files.choice("format", FILE_FORMATS, "parquet"),
        schema=files.text("schema"),
        max_files_per_trigger=files.integer("max-files-per-trigger"),
        options=files.mapping("options"),
    )


def _rate(rate: _Section) -> RateSettings:
    rate.only("rows-per-second", "options")
    rows = rate.integer("rows-per-second")
    return RateSettings(rows_per_second=1_000 if rows is None else rows, options=rate.mapping("options"))


def _table_readers(sink: _Section) -> dict[str, Callable[[str], Any]]:
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


def _write_options(sink: _Section, key: str) -> dict[str, str]:
    options = sink.mapping(key)
    check_write_options(options, sink.at(key))
    return options


def _sink(sink: _Section) -> SinkSettings:
    readers = _table_readers(sink)
    of_many: dict[str, Callable[[str], Any]] = {
        "on-table-failure": sink.text,
        "route": sink.text,
        "default-table": sink.text,
        "max-tables": sink.integer,
    }
    sink.only("table", "catalog", "tables", *of_many, *readers)
    arguments = _arguments(sink, {**readers, **of_many})
    catalog = sink.content.get("catalog")
    if catalog is not None:
        arguments["catalog"] = (
            sink.mapping("catalog") if isinstance(catalog, Mapping) else sink.text("catalog")
        )
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


def _own_settings(tables: _Section) -> dict[str, dict[str, Any]]:
    """The settings of single tables, by the tables' names."""
    found = {}
    for name in tables.content:
        own = tables.section(str(name))
        readers = _table_readers(own)
        own.only(*readers)
        found[str(name)] = _arguments(own, readers)
    return found


def _arguments(section: _Section, readers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    return {
        key.replace("-", "_"): read(key)
        for key, read in readers.items()
        if section.content.get(key) is not None
    }


def _trigger(root: _Section) -> Mapping[str, Any]:
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


def _spark(root: _Section) -> SparkSettings:
    if root.content.get("spark") is None:
        return SparkSettings()
    spark = root.section("spark")
    spark.only("master", "log-level", "config")
    return SparkSettings(
        master=spark.text("master"),
        log_level=(spark.text("log-level") or "ERROR").upper(),
        config=spark.mapping("config"),
    )


def _quotes(value: Any) -> str:
    """What to do where braces or brackets without quotes have made a text something else."""
    return "; put a text that begins with { or [ between quotes" if isinstance(value, Mapping | list) else ""


class _Section:
    """One mapping of the file, with readers that check types and name the key in every error."""

    def __init__(self, name: str, path: str, content: Any, lines: Lines) -> None:
        self.name, self.path, self.lines = name, path, lines
        if content is None:
            content = {}
        if not isinstance(content, Mapping):
            raise InvalidOptionError(
                f"{self.at()}: a mapping of keys to values is needed here, not {kind_of(content)}"
                f"{self._line(path)}"
            )
        self.content = cast("Mapping[str, Any]", content)

    def at(self, key: str = "") -> str:
        return f"{self.name}: {self._path_of(key)}".rstrip(": ")

    def wrong(self, key: str, problem: str) -> InvalidOptionError:
        return InvalidOptionError(f"{self.at(key)} {problem}{self._line(self._path_of(key))}")

    def mistyped(self, key: str, needed: str) -> InvalidOptionError:
        """The error for a value of another kind than the key takes."""
        return self.wrong(key, f"must be {needed}, not {kind_of(self.content.get(key))}")

    def only(self, *keys: str) -> None:
        for name in map(str, self.content):
            try:
                check_option_names([name], keys, self.at())
            except InvalidOptionError as error:
                raise InvalidOptionError(f"{error}{self._line(self._path_of(name))}") from None

    def _path_of(self, key: str) -> str:
        return ".".join(filter(None, (self.path, key)))

    def _line(self, path: str) -> str:
        """Where the file has the key; nothing for one that it does not have."""
        return f" (line {self.lines[path]})" if path in self.lines else ""

    def section(self, key: str) -> _Section:
        if key not in self.content:
            raise self.wrong(key, "is missing")
        return _Section(self.name, self._path_of(key), self.content[key], self.lines)

    def required_text(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise self.wrong(key, "is missing")
        return value

    def text(self, key: str) -> str | None:
        value = self.content.get(key)
        if value is None:
            return None
        if isinstance(value, bool | Mapping | list):
            raise self.wrong(key, f"must be a text, not {kind_of(value)}{_quotes(value)}")
        return str(value)

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        value = self.content.get(key)
        if value is None or value == []:
            if required:
                raise self.wrong(key, "is missing")
            return ()
        values = value if isinstance(value, list) else [value]
        for item in values:
            if isinstance(item, bool | Mapping | list) or item is None:
                inside = " in it" if isinstance(value, list) else ""
                problem = f"must be a text or a list of texts, not {kind_of(item)}{inside}{_quotes(item)}"
                raise self.wrong(key, problem)
        return tuple(map(str, values))

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(key) or default
        if value not in choices:
            near = suggestion(value, choices)
            hint = f"; did you mean '{near}'?" if near else ""
            raise self.wrong(key, f"is '{value}', which is not one of {', '.join(choices)}{hint}")
        return value

    def integer(self, key: str) -> int | None:
        value = self.content.get(key)
        if value is None:
            return None
        try:
            if isinstance(value, bool | float):
                raise ValueError
            number = int(value)
        except (TypeError, ValueError):
            raise self.mistyped(key, "a whole number") from None
        if number < 1:
            raise self.wrong(key, f"is {number}; it must be at least 1")
        return number

    def flag(self, key: str) -> bool:
        value = self.content.get(key)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self.mistyped(key, "true or false")
        return value

    def mapping(self, key: str) -> dict[str, str]:
        """String keys to texts; booleans become `true` and `false`, as options are written."""
        section = _Section(self.name, self._path_of(key), self.content.get(key), self.lines)
        found = {}
        for name, value in section.content.items():
            if value is None or isinstance(value, Mapping | list):
                raise section.mistyped(str(name), "a text, a number, true or false")
            found[str(name)] = str(value).lower() if isinstance(value, bool) else str(value)
        return found
