"""IcebergTables: one query writes a KafkaSource into many tables, by topic or row; each commits on its own.

Place in the flow: beside IcebergSink; `tables_query` is what a start makes of it. Invariant: it is what the
user has made it; what a query finds out belongs to the query.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any

from pyspark.sql import SparkSession

from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.commit.lineage import lineage_error
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError
from streamlake.options import named_arguments, require_arguments
from streamlake.pipeline.direct.direct_query import DirectQuery, direct_stream
from streamlake.pipeline.kafka.direct_offsets import KAFKA_OFFSETS, kafka_offsets
from streamlake.pipeline.runs.upsert_options import unknown_value
from streamlake.pipeline.sinks.bound_directory import directory_at
from streamlake.pipeline.sinks.bound_tables import tables_finding, template_command
from streamlake.pipeline.sinks.quarantine import Quarantined
from streamlake.pipeline.sinks.query_runs import RECEIPTS_KEPT
from streamlake.pipeline.sinks.shown_sinks import shown_sink
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.sinks.tables_query import TablesQuery, TablesSettings
from streamlake.pipeline.spark.start import start_query
from streamlake.pipeline.spark.worker_python import usable_session
from streamlake.source.kafka_source import KafkaSource
from streamlake.tasks.row_names import RouteFunction, imported_route
from streamlake.tasks.table_names import ROUTE, TableNames, is_template, row_placeholders

FAIL = "fail"
QUARANTINE = "quarantine"


class IcebergTables:
    """Writes each topic of one KafkaSource to its own table (or several to one, where their names say so), or
    its rows to the tables that they name.

    `table` is a template, see TableNames; `catalog`, `mode` and `settings` are those of IcebergSink for every
    table, with `create=True` unless said otherwise, and `tables` changes them for single ones:
    {"lake.orders": {"key": ["id"]}}. Where no key is given, an upsert uses the table's identifier fields,
    else the key that the envelope's messages name. `on_commit` gets each table's receipts, which name it.

    `route` is a function, or its name as "package.module:function", that fills `{route}` in the template. It
    takes a RecordBatch of rows, called once per batch in the tasks, and returns an array of as many texts,
    null for rows without a table. It must give the same text for the same row each time. Rows whose field is
    null or makes no name, and those that `route` gives none, go into `default_table`. Without one their
    records are errors, or rejects with on_error="reject", of the table that has "unrouted" where others have
    their value. At most `max_tables` tables are opened or created.

    `on_table_failure` decides what happens when the records of a table cannot be written. "fail" ends the
    query, after the other tables have committed; "quarantine" puts the table into quarantine and continues
    with the others, and the next start reads again what was skipped. Raises InvalidOptionError for arguments
    that contradict each other.
    """

    def __init__(  # noqa: PLR0913
        self,
        table: str,
        catalog: str | Mapping[str, str] | None = None,
        mode: str = "append",
        *,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        route: RouteFunction | str | None = None,
        default_table: str | None = None,
        max_tables: int = 1_000,
        on_table_failure: str = FAIL,
        on_commit: Callable[[CommitReceipt], None] | None = None,
        **settings: Any,
    ) -> None:
        known = (*signature(IcebergTables).parameters, *signature(IcebergSink).parameters)
        for given in (settings, *(tables or {}).values()):
            require_arguments(IcebergTables.__init__, given, [name for name in known if name != "settings"])
        if not is_template(table):
            raise InvalidOptionError(
                f"the table '{table}' has no placeholder, so that all topics would go into it: write one, as "
                f"in 'lake.{{topic}}', or use IcebergSink"
            )
        if max_tables < 1:
            raise InvalidOptionError(f"max_tables is {max_tables}; it must be at least 1")
        by_row = row_placeholders(table)
        if route is not None and ROUTE not in by_row:
            raise InvalidOptionError(
                f"a function is given as route, and the table '{table}' does not take what it says: write "
                f"'{{{ROUTE}}}' in its name"
            )
        if default_table is not None and not by_row:
            raise InvalidOptionError(
                f"default_table is for rows that name no table, and topics alone name those of '{table}'; "
                "leave it out"
            )
        if default_table is not None and row_placeholders(default_table):
            raise InvalidOptionError(
                f"default_table is '{default_table}': rows that go there do not tell what is to be written "
                "in its name; placeholders that the topic fills are allowed"
            )
        if on_table_failure not in (FAIL, QUARANTINE):
            raise unknown_value("on_table_failure", on_table_failure, (FAIL, QUARANTINE))
        self.table = table
        self._settings = TablesSettings(
            table,
            catalog,
            mode,
            {"create": True, **settings},
            {name: dict(own) for name, own in (tables or {}).items()},
            imported_route(route) if isinstance(route, str) else route,
            default_table,
            max_tables,
            on_table_failure == QUARANTINE,
        )
        self._on_commit = on_commit
        self._query: TablesQuery | None = None
        self.receipts: deque[CommitReceipt] = deque(maxlen=RECEIPTS_KEPT)
        for name in (table, *self._settings.own, *([] if default_table is None else [default_table])):
            self._settings.sink(name)

    def __repr__(self) -> str:
        settings = self._settings
        known = {"mode": settings.mode, **settings.common}
        return shown_sink(type(self).__name__, settings.table, known, self.receipts, self.error)

    @property
    def sinks(self) -> dict[str, IcebergSink]:
        """The sinks of the tables that the query has discovered, by the tables' names."""
        return {} if self._query is None else self._query.sinks

    @property
    def error(self) -> BaseException | None:
        """The error that ended the last query; None while there is none."""
        return None if self._query is None else self._query.error

    @property
    def quarantine(self) -> Mapping[str, Quarantined]:
        """The tables in quarantine, by name."""
        return {} if self._query is None else self._query.quarantine

    @property
    def maintained(self) -> tuple[TableUpkeep, ...]:
        """What the maintenance beside the stream does and has done, for each table."""
        return () if self._query is None else self._query.maintained

    @named_arguments
    def start(
        self,
        source: KafkaSource,
        *,
        checkpoint_location: str,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
    ) -> DirectQuery:
        """Start the query and return it (the StreamingQuery interface); see IcebergSink.start."""
        if not isinstance(source, KafkaSource):
            raise InvalidOptionError(
                "many tables are written from a KafkaSource; a DataFrame goes into one table: use IcebergSink"
            )
        self._query = None
        settings = self._settings
        tables = TablesQuery(settings, source, self._delivered)
        if not tables.names.by_row and source.topics is not None:
            settings.require_own_used([tables.names.of(topic) for topic in source.topics])
        session = usable_session(SparkSession.builder.getOrCreate())
        _require_own_tables(settings, str(checkpoint_location), tables.names)
        self._query = tables
        offsets_of = kafka_offsets(session, source, str(checkpoint_location))
        stream = direct_stream(session, offsets_of, trigger)
        if not tables.names.by_row and source.topics is None and stream.offsets.first is not None:
            now = sorted({topic for topic, _ in stream.offsets.first.positions})
            settings.require_own_used([tables.names.of(topic) for topic in now], tables.names)
        query = start_query(
            partial(tables.write, stream.offsets),
            stream.frame,
            checkpoint_location=checkpoint_location,
            trigger=stream.trigger,
            query_name=query_name,
            output_mode="append",
            sink=tables,
        )
        return DirectQuery(query, stream.offsets)

    def _delivered(self, receipt: CommitReceipt) -> None:
        self.receipts.append(receipt)
        if self._on_commit is not None:
            self._on_commit(receipt)


def _require_own_tables(settings: TablesSettings, location: str, names: TableNames) -> None:
    """Raises LineageError where the directory has read records for other tables."""
    directory = directory_at(SparkSession.builder.getOrCreate(), location, KAFKA_OFFSETS)
    bound, catalog = settings.bound, settings.catalog
    found = None if directory is None else tables_finding(directory, bound, names, catalog)
    if found is not None and directory is not None:
        raise lineage_error(
            found, template_command(settings.table, bound.branch, catalog, directory.location)
        )
