"""KafkaSource: which records to read, from which offset on, and what their rows look like.

A value, which opens no connection. It travels from the user to the driver's planner and to the executors'
fetchers, so it is frozen and can be pickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.formats.arrow.arrow_schema import schema_from_arrow
from streamlake.options import named_arguments, shown, suggestion
from streamlake.records import ROW_KIND, SEQUENCE
from streamlake.source.source_options import (
    DELETE_NULLS,
    IGNORE_NULLS,
    SourceOptions,
    parse_source_options,
)
from streamlake.spec.types.data_types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema, fresh_schema
from streamlake.spec.types.spark_schema import schema_from_spark_json

ENVELOPES = (
    "debezium-json",
    "debezium-avro",
    "debezium-unwrapped-json",
    "debezium-unwrapped-avro",
    "canal-json",
    "maxwell-json",
)
"""Formats of change streams, whose rows have row kinds."""
FORMATS = ("json", "raw", "avro", "confluent-avro", "confluent-json", *ENVELOPES)
METADATA_TYPES: Mapping[str, Any] = {
    "key": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestamptzType(),
    "headers": ListType(
        1,
        StructType((NestedField(2, "key", StringType(), True), NestedField(3, "value", BinaryType()))),
    ),
}
"""The columns that `include` can add, beside the decoded value."""
_PART_TYPES: Mapping[str, Any] = {**METADATA_TYPES, SEQUENCE: LongType()}

_RAW_VALUE = Schema((NestedField(1, "value", BinaryType()),))


@dataclass(frozen=True, repr=False)
class KafkaSource:
    """Records of Kafka topics as rows.

    `bootstrap_servers` is "host:port,host:port" or a list. Exactly one of `topics` (a name or a list) and
    `topic_pattern` (a regular expression that the whole name must match) is given.

    `schema` gives the columns of a JSON value: DDL text ("id long not null, name string"), or a pyarrow or
    Spark schema. None means that it is taken from the table where there is one, else from the Avro schema or
    the schema registry, else inferred from the first records. `format` is "json"; "avro" with the schema in
    the option avro.schema; "confluent-avro" and "confluent-json" for records in a schema registry's wire
    format; "raw" for the value as it is (one binary column `value`); or one of ENVELOPES for a database's
    changes, whose rows also have the column ROW_KIND. `include` adds columns from the record itself: key
    (binary), topic, partition, offset, timestamp (with time zone), headers, and with an envelope sequence
    (its position in the database's log). The option `include-prefix` is put before their names.

    `options`: starting-offsets (earliest, latest, timestamp, or JSON), starting-timestamp,
    max-offsets-per-trigger, min-partitions, fail-on-data-loss, isolation-level, fetch-timeout-ms,
    partition-discovery-interval-ms, inference-sample-size, null-value (ignore, delete, reject), json.*,
    avro.*, schema-registry.* and debezium.* for the decoder, and kafka.* for the client
    (kafka.security.protocol, ...).

    Raises InvalidOptionError when something is unknown or contradictory. Contacts no server.
    """

    bootstrap_servers: str | Iterable[str]
    topics: str | Iterable[str] | None = None
    topic_pattern: str | None = None
    schema: Any = None
    format: str = "json"
    options: Mapping[str, Any] = field(default_factory=dict)
    include: str | Iterable[str] = ()

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "bootstrap_servers", ",".join(_names(self.bootstrap_servers)))
        set_(self, "topics", None if self.topics is None else tuple(dict.fromkeys(_names(self.topics))))
        set_(self, "include", _names(self.include))
        set_(self, "options", {str(key): _text(value) for key, value in dict(self.options).items()})
        if not self.bootstrap_servers:
            raise InvalidOptionError("KafkaSource: bootstrap_servers is empty; give host:port")
        self._check_topics()
        if self.format not in FORMATS:
            near = suggestion(self.format, FORMATS)
            hint = f". Did you mean '{near}'?" if near else ""
            raise InvalidOptionError(
                f"KafkaSource: the format '{self.format}' is not known; it can be {', '.join(FORMATS)}{hint}"
            )
        for name in self.include:
            if name not in _PART_TYPES:
                near = suggestion(name, _PART_TYPES)
                hint = f"did you mean '{near}'?" if near else f"it can hold {', '.join(_PART_TYPES)}"
                raise InvalidOptionError(f"KafkaSource: include holds '{name}'; {hint}")
        if SEQUENCE in self.include and not self.is_envelope:
            raise InvalidOptionError(
                f"KafkaSource: include holds '{SEQUENCE}', which records of the format '{self.format}' do "
                f"not have; the formats {', '.join(ENVELOPES)} do"
            )
        set_(self, "schema", self._value_schema())
        if self.settings.source_tables and not self.is_envelope:
            raise InvalidOptionError(
                "KafkaSource: source-tables is for changes, which name their tables, and records of the "
                f"format '{self.format}' are none; the formats {', '.join(ENVELOPES)} are"
            )
        self._check_null_value()
        if self.settings.partial_update and self.format == "raw":
            raise InvalidOptionError(
                "KafkaSource: partial-update is for records with fields, which those of the format 'raw' "
                "are not"
            )
        if self.schema is not None:
            self._check_names(self.schema)

    @cached_property
    def settings(self) -> SourceOptions:
        """The parsed options."""
        return parse_source_options(self.options)

    @property
    def servers(self) -> list[str]:
        """The bootstrap servers, one by one."""
        return str(self.bootstrap_servers).split(",")

    @property
    def is_envelope(self) -> bool:
        """Whether records are changes of a database's table, in one of ENVELOPES."""
        return self.format in ENVELOPES

    @property
    def has_row_kinds(self) -> bool:
        """Whether the column ROW_KIND of the rows says what each record does.

        That is so for changes, and where records without a value delete rows.
        """
        return self.is_envelope or self.settings.null_value == DELETE_NULLS

    @property
    def table_schema(self) -> Schema:
        """The rows' schema with ids from 1: the decoded columns, then the included ones, then the row kind.

        Raises InvalidOptionError while the schema is still to be inferred.
        """
        if self.schema is None:
            raise InvalidOptionError(
                f"{self}: the schema is not known yet; it is inferred when the stream starts"
            )
        value: Schema = self.schema
        fields = (*value.fields, *self._metadata_fields(value.highest_field_id))
        if self.has_row_kinds:
            unused = Schema(fields).highest_field_id + 1
            fields = (*fields, NestedField(unused, ROW_KIND, IntegerType(), True))
        return fresh_schema(Schema(fields))

    @property
    def metadata_columns(self) -> dict[str, str]:
        """Included column name -> the part of the record that it holds."""
        return {f"{self.settings.include_prefix}{name}": name for name in self.include}

    def with_schema(self, schema: Any) -> KafkaSource:
        """This source with `schema` for its values.

        Columns that do not come from the values are taken out of it: those that `include` provides, and the
        row kind of an envelope.
        """
        known = _as_schema(schema)
        provided = {*self.metadata_columns, *([ROW_KIND] if self.has_row_kinds else [])}
        kept = tuple(part for part in known.fields if part.name not in provided)
        return replace(self, schema=Schema(kept))

    def __reduce__(self) -> Any:
        arguments = (
            self.bootstrap_servers,
            self.topics,
            self.topic_pattern,
            self.schema,
            self.format,
            self.options,
            self.include,
        )
        return KafkaSource, arguments

    def __repr__(self) -> str:
        topics = (
            f"topic_pattern={self.topic_pattern!r}" if self.topics is None else f"topics={list(self.topics)}"
        )
        return (
            f"KafkaSource(bootstrap_servers={self.bootstrap_servers!r}, {topics}, "
            f"options={shown(self.options)})"
        )

    def _check_null_value(self) -> None:
        given = self.settings.null_value
        if given == IGNORE_NULLS:
            return
        if self.is_envelope or self.format == "raw":
            what = "keep such values as they are" if self.format == "raw" else "say themselves what they do"
            raise InvalidOptionError(
                f"KafkaSource: null-value is '{given}', but records of the format '{self.format}' {what}; "
                "leave it out"
            )
        if given == DELETE_NULLS and self.settings.partial_update:
            raise InvalidOptionError(
                "KafkaSource: null-value=delete and partial-update cannot be combined; leave one of them out"
            )

    def _check_topics(self) -> None:
        if (self.topics is None) == (self.topic_pattern is None):
            raise InvalidOptionError("KafkaSource: give exactly one of topics and topic_pattern")
        if self.topics is not None and not self.topics:
            raise InvalidOptionError("KafkaSource: topics is empty")
        if self.topic_pattern is not None:
            try:
                re.compile(self.topic_pattern)
            except re.error as error:
                raise InvalidOptionError(
                    f"KafkaSource: topic_pattern {self.topic_pattern!r} is not a regular expression: {error}"
                ) from error

    def _value_schema(self) -> Schema | None:
        if self.format == "raw":
            if self.schema is not None and not (
                isinstance(self.schema, Schema) and self.schema.column_names == _RAW_VALUE.column_names
            ):
                raise InvalidOptionError("KafkaSource: format 'raw' has no schema; leave it out")
            return _RAW_VALUE
        return None if self.schema is None else _as_schema(self.schema)

    def _check_names(self, schema: Schema) -> None:
        taken = [name for name in self.metadata_columns if schema.find(name) is not None]
        if taken:
            raise InvalidOptionError(
                f"KafkaSource: the schema and include both have the column '{taken[0]}'; set the option "
                "include-prefix, for example to 'kafka_'"
            )

    def _metadata_fields(self, highest_id: int) -> tuple[NestedField, ...]:
        # Ids only have to differ here: `table_schema` assigns new ones.
        fields = []
        for at, (column, name) in enumerate(self.metadata_columns.items()):
            type_ = _PART_TYPES[name]
            if name == "headers":
                base = highest_id + len(_PART_TYPES)
                entry = StructType(
                    (
                        NestedField(base + 3, "key", StringType(), True),
                        NestedField(base + 4, "value", BinaryType()),
                    )
                )
                type_ = ListType(base + 2, entry)
            fields.append(NestedField(highest_id + 1 + at, column, type_))
        return tuple(fields)


KafkaSource.__init__ = named_arguments(KafkaSource.__init__)  # type: ignore[method-assign]


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_schema(schema: Any) -> Schema:
    try:
        if isinstance(schema, Schema):
            return schema
        if isinstance(schema, str):
            return parse_ddl(schema)
        if isinstance(schema, pa.Schema):
            return schema_from_arrow(schema)
        if callable(getattr(schema, "json", None)) and hasattr(schema, "fields"):
            return schema_from_spark_json(schema.json())
    except StreamlakeError as error:
        raise InvalidOptionError(f"KafkaSource: the schema cannot be used: {error}") from error
    raise InvalidOptionError(
        f"KafkaSource: the schema is a {type(schema).__name__}; give DDL text, a pyarrow or a Spark schema"
    )
