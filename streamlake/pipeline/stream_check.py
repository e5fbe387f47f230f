"""Could topics become one table? The stream's columns and key beside the table's, the registry, and a few records.

One of these for each table of a pipeline; `sink_check` looks at the table, `topic_check` at the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamlake.errors import StreamlakeError
from streamlake.pipeline.check_points import Points
from streamlake.pipeline.registry_check import FORMATS, check_registry
from streamlake.pipeline.rejects import REJECT
from streamlake.pipeline.rejects_table import open_rejects
from streamlake.pipeline.sampled_schema import changed_rows, with_inferred_schema
from streamlake.pipeline.sink_check import SCHEMA, SinkPlan, check_creation, check_table, found_table
from streamlake.pipeline.source_notes import sources_of
from streamlake.pipeline.topic_check import check_records
from streamlake.pipeline.upsert_options import identifier_columns, with_row_kind
from streamlake.records import ROW_KIND
from streamlake.source.cluster import Cluster, Topics
from streamlake.source.kafka_source import KafkaSource
from streamlake.table.table import Table

MODE = "mode"
REJECTS = "rejects"


@dataclass
class TableOnTopics:
    """A table, and the source with the topics that go into it; `topics` None: they could not be asked for."""

    plan: SinkPlan
    source: KafkaSource
    topics: Topics | None
    cluster: Cluster
    points: Points

    def check(self) -> Table | None:
        """Look at everything that concerns this table; it, where it is there."""
        if self.source.has_row_kinds:
            self.plan = replace(self.plan, row_kind=ROW_KIND)
            if not self.plan.is_keyed:
                self.points.error(
                    MODE,
                    f"the format '{self.source.format}' brings updates and deletes, which mode '{self.plan.mode}' cannot carry "
                    "out; set sink.mode: upsert",
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
        """The source with the schema that it would have: its own, else the table's, else that of a sample. A change
        stream's key comes from a sample too, where nobody else tells it."""
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
            self.points.unknown(SCHEMA, "the columns are told by topic or table, which could not be asked")
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
            rejects = self.plan.on_error == REJECT
            sources = None if table is None else sources_of(table)
            check_records(
                known, self.cluster, topics, self.plan.key, self.points, rejects=rejects, sources=sources
            )
