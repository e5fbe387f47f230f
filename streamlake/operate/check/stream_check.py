"""Checks whether topics could feed one table: the stream's columns and key, the registry, and a few records.

There is one such check for each table of a pipeline; `sink_check` checks the table, `topic_check` the
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.decode.avro.avro_decoder import AvroDecoder
from streamlake.decode.cdc.row_kinds import with_row_kind
from streamlake.decode.registry.registry_options import PREFIX, RegistryOptions
from streamlake.decode.registry.schema_registry import SchemaRegistry, UnknownSchemaError, schema_registry
from streamlake.decode.rejected_records import RejectStamp
from streamlake.decode.value_formats import declared_schema
from streamlake.errors import StreamlakeError
from streamlake.operate.check.check_points import Points
from streamlake.operate.check.sink_check import (
    SCHEMA,
    SinkPlan,
    check_creation,
    check_table,
    follows_stream,
    found_table,
    planned_schema,
)
from streamlake.operate.check.topic_check import check_records
from streamlake.pipeline.kafka.sampled_schema import changed_rows, with_inferred_schema
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects
from streamlake.pipeline.runs.rejects import REJECT
from streamlake.pipeline.runs.source_notes import sources_of
from streamlake.pipeline.runs.upsert_options import identifier_columns
from streamlake.records import ROW_KIND
from streamlake.source.cluster import Cluster, Topics
from streamlake.source.kafka_source import ENVELOPES, KafkaSource
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.tasks.record_screen import RejectRules

REGISTRY = "registry"
PLAIN_FORMATS = ("confluent-avro", "confluent-json")
FORMATS = (*PLAIN_FORMATS, *(name for name in ENVELOPES if name.endswith("-avro")))
"""Formats whose records name a schema in a registry; an envelope's schema has the table's columns inside."""


MODE = "mode"
REJECTS = "rejects"


def check_registry(
    source: KafkaSource, topics: Iterable[str], columns: Schema | None, points: Points
) -> None:
    """Check the registry's schemas against the table.

    `columns` are the table's columns that come from the records' values; None where there is no table yet.
    """
    options = {name: value for name, value in source.settings.decode.items() if name.startswith(PREFIX)}
    try:
        parsed = RegistryOptions.parse(options)
        registry = schema_registry(parsed)
    except StreamlakeError as error:
        points.error(REGISTRY, str(error))
        return
    if parsed.credentials_in_the_open:
        points.warning(REGISTRY, parsed.credentials_in_the_open)
    found = []
    for topic in sorted(set(topics)):
        try:
            if source.format in PLAIN_FORMATS:
                declared_schema(source.format, lambda topic=topic: [topic], source.settings.decode)  # type: ignore[misc]
            else:
                registry.latest(registry.subject_of(topic))
            if columns is not None and source.format == "confluent-avro":
                _require_columns(registry, registry.subject_of(topic), columns)
        except (StreamlakeError, UnknownSchemaError) as error:
            points.error(REGISTRY, str(error))
        else:
            found.append(topic)
    if found:
        is_fitted = columns is not None and source.format == "confluent-avro"
        fits = ", and they fit the table" if is_fitted else ""
        points.right(REGISTRY, f"it has the newest schemas of {', '.join(found[:8])}{fits}")


def _require_columns(registry: SchemaRegistry, subject: str, columns: Schema) -> None:
    """Raise SchemaMismatchError where records of the subject's newest schema do not fit the columns."""
    newest = registry.latest(subject)
    AvroDecoder(columns, newest.avro, None, where=newest.name)


@dataclass
class TableOnTopics:
    """A table and the source with the topics that feed it; `topics` None: they could not be determined."""

    plan: SinkPlan
    source: KafkaSource
    topics: Topics | None
    cluster: Cluster
    points: Points

    def check(self) -> Table | None:
        """Check everything that concerns this table; returns the table, None where there is none."""
        if self.source.has_row_kinds:
            self.plan = replace(self.plan, row_kind=ROW_KIND)
            if not self.plan.is_keyed:
                self.points.error(
                    MODE,
                    f"the format '{self.source.format}' brings updates and deletes, which mode "
                    f"'{self.plan.mode}' cannot carry out; set sink.mode: upsert",
                )
        table, is_known = found_table(self.plan, self.points)
        known = self._known(table, is_known)
        if table is not None:
            own = None if self.source.schema is None else self.source.table_schema
            check_table(self.plan, table, own, self.points)
        elif is_known and known is not None and self.plan.create:
            check_creation(self.plan, known.table_schema, self.points)
        if self.plan.on_error == REJECT:
            with self.points.errors(REJECTS):
                open_rejects(self.plan.table, self.plan.catalog)
        if self.topics is not None:
            self._check_values(table, known, self.topics)
        return table

    def _known(self, table: Table | None, is_known: bool) -> KafkaSource | None:
        """The source with the schema that it would have: its own, else the table's, else that of a sample.

        A change stream's key also comes from a sample where nothing else gives it.
        """
        try:
            sample = None
            if self._needs_key(table) and self.topics is not None:
                sample = changed_rows(self.source)
                self.plan = replace(self.plan, key=sample.key)
            if self.source.schema is not None:
                return self.source
            if table is not None:
                return self.source.with_schema(with_row_kind(table.schema, self.plan.row_kind))
            if sample is not None:
                return self.source.with_schema(sample.schema)
            if is_known and self.topics is not None:
                return with_inferred_schema(self.source)
        except StreamlakeError as error:
            self.points.error(SCHEMA, str(error))
        else:
            self.points.unknown(
                SCHEMA, "the columns come from the topic or the table, which could not be read"
            )
        return None

    def _needs_key(self, table: Table | None) -> bool:
        if not self.source.has_row_kinds or not self.plan.is_keyed or self.plan.key:
            return False
        return table is None or not identifier_columns(table)

    def _check_values(self, table: Table | None, known: KafkaSource | None, topics: Topics) -> None:
        names: Sequence[str] = sorted({topic for topic, _ in topics.partitions})
        if self.source.format in FORMATS:
            columns = None
            if table is not None:
                columns = self.source.with_schema(with_row_kind(table.schema, self.plan.row_kind)).schema
            check_registry(self.source, names, columns, self.points)
        if known is not None:
            check_records(
                known,
                self.cluster,
                topics,
                self.plan.key,
                self.points,
                rejects=self.plan.on_error == REJECT,
                sources=None if table is None else sources_of(table),
                rules=self._rules(table, known),
            )

    def _rules(self, table: Table | None, known: KafkaSource) -> RejectRules | None:
        """What the table asks of rows; None where it follows them, or where that is an error already."""
        plan = self.plan
        if follows_stream(plan, table):
            return None
        try:
            schema = planned_schema(plan, known.table_schema) if table is None else table.schema
        except StreamlakeError:
            return None
        key = tuple(plan.key) or (identifier_columns(table) if plan.is_keyed and table is not None else ())
        stamp = RejectStamp(plan.pipeline or "", NO_CHECKPOINT, 0)
        return RejectRules(
            plan.table,
            schema,
            stamp,
            key=key,
            sequence_by=tuple(plan.sequence_by),
            row_kind=plan.row_kind,
        )
