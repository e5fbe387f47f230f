"""KafkaSource as flat text options, the way Spark carries them: `spark.readStream.format(...).option(...)`.

Invariant: `source_from_options(source_to_options(source))` is a source that reads the same records. Option
names are in lower case, because Spark does not keep their case; the values of client options stay unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamlake.errors import InvalidOptionError
from streamlake.source.kafka_source import FORMATS, KafkaSource
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_from_json, schema_to_json

_SERVERS = ("bootstrap-servers", "kafka.bootstrap.servers")
_ARGUMENTS = (*_SERVERS, "topics", "topic-pattern", "schema", "format", "include")
_SPARK_NAMES = {
    "subscribe": "topics",
    "subscribepattern": "topic-pattern",
    "startingoffsets": "starting-offsets",
    "maxoffsetspertrigger": "max-offsets-per-trigger",
    "minpartitions": "min-partitions",
    "failondataloss": "fail-on-data-loss",
}


def source_to_options(source: KafkaSource) -> dict[str, str]:
    """The options from which `source_from_options` makes the same source."""
    flat = {"bootstrap-servers": str(source.bootstrap_servers), "format": source.format}
    if source.topics is not None:
        flat["topics"] = ",".join(source.topics)
    if source.topic_pattern is not None:
        flat["topic-pattern"] = source.topic_pattern
    if source.schema is not None and source.format != "raw":
        flat["schema"] = json.dumps(schema_to_json(source.schema))
    if source.include:
        flat["include"] = ",".join(source.include)
    return {**source.options, **flat}


def source_from_options(options: Mapping[str, str]) -> KafkaSource:
    """The source of these options; the names of Spark's own Kafka source are accepted too.

    Raises InvalidOptionError.
    """
    for name, meant in _SPARK_NAMES.items():
        if name in options:
            raise InvalidOptionError(f"unknown option '{name}'; here it is called '{meant}'")
    servers = next((options[name] for name in _SERVERS if name in options), None)
    if servers is None:
        raise InvalidOptionError("the option bootstrap-servers is missing; give host:port")
    format_ = options.get("format", "json" if "schema" in options else "raw")
    if format_ not in FORMATS:
        raise InvalidOptionError(f"the format '{format_}' is not known; it can be {', '.join(FORMATS)}")
    return KafkaSource(
        bootstrap_servers=servers,
        topics=options.get("topics"),
        topic_pattern=options.get("topic-pattern"),
        schema=_schema(options.get("schema")),
        format=format_,
        options={key: value for key, value in options.items() if key not in _ARGUMENTS},
        include=options.get("include", ()),
    )


def _schema(text: str | None) -> Schema | str | None:
    if text is not None and text.lstrip().startswith("{"):
        return schema_from_json(json.loads(text))
    return text
