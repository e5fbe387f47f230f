"""IcebergTables: one query writes a KafkaSource into many tables, by topic or row; each commits on its own.

Place in the flow: beside IcebergSink, of which it holds one per table. A topic is discovered with its first
offsets; its table is opened, or created from the template. Tables that rows name are left to `row_tables`.
Invariant: a micro-batch is done when every table that had records in it is; a replay does not write again
what a table has committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake import clock
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT, Calls
from streamlake.commit.lineage import lineage_error
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.options import suggestion
from streamlake.pipeline.kafka.checkpoint_step import Step
from streamlake.pipeline.kafka.direct_offsets import DirectOffsets
from streamlake.pipeline.kafka.direct_query import DirectQuery, direct_stream
from streamlake.pipeline.runs.direct_tables import DirectTable, write_direct
from streamlake.pipeline.runs.parallel import Ending, in_parallel
from streamlake.pipeline.runs.upsert_options import unknown_value
from streamlake.pipeline.sinks.bound_directory import directory_at
from streamlake.pipeline.sinks.bound_tables import (
    BOUND_PATH,
    BoundTables,
    bound_to,
    tables_finding,
    template_command,
)
from streamlake.pipeline.sinks.quarantine import Quarantined, missed_ranges, quarantined
from streamlake.pipeline.sinks.row_tables import RowTableOptions, RowTables
from streamlake.pipeline.sinks.shown_sinks import ShownSink
from streamlake.pipeline.sinks.sink import RECEIPTS_KEPT, IcebergSink
from streamlake.pipeline.sinks.table_member import TableMember
from streamlake.pipeline.sinks.table_quarantine import Quarantine
from streamlake.pipeline.sinks.while_idle import WhileIdle
from streamlake.pipeline.sinks.written_tables import WrittenTables
from streamlake.pipeline.spark.checkpoint_file import CheckpointFile
from streamlake.pipeline.spark.interruption import short_interruptions
from streamlake.pipeline.spark.query_identity import checkpoint_identity, query_run
from streamlake.pipeline.spark.start import start_query
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.storage.locations import noted_table
from streamlake.tasks.row_names import RouteFunction, RowRoute, imported_route
from streamlake.tasks.table_names import ROUTE, TableNames, is_template, row_placeholders
from streamlake.tasks.task_errors import FINAL_ERRORS

_LOG = logging.getLogger(__name__)

FAIL = "fail"
QUARANTINE = "quarantine"


class IcebergTables(ShownSink):
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
        self._route = imported_route(route) if isinstance(route, str) else route
        self._default_table = default_table
        self._max_tables = max_tables
        self._quarantines = on_table_failure == QUARANTINE
        self._catalog = catalog
        self._mode = mode
        self._settings = {"create": True, **settings}
        self._own_settings = {name: dict(own) for name, own in (tables or {}).items()}
        self._on_commit = on_commit
        self._members: dict[str, TableMember] = {}
        self._names: TableNames | None = None
        self._is_first = True
        self._aside: Quarantine | None = None
        self._rows: RowTables | None = None
        self._written: WrittenTables | None = None
        self.receipts: deque[CommitReceipt] = deque(maxlen=RECEIPTS_KEPT)
        self.error: BaseException | None = None
        for name in (table, *self._own_settings, *([] if default_table is None else [default_table])):
            self._sink(name)

    @property
    def sinks(self) -> dict[str, IcebergSink]:
        """The sinks of the tables that the query has discovered, by the tables' names."""
        return {name: member.sink for name, member in self._members.items()}

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
        self.error = None
        names = self._names = TableNames(self.table, source.topic_pattern, has_route=self._route is not None)
        self._members = {}
        self._is_first = True
        self._aside = None
        self._rows = None
        self._written = None
        if names.by_row:
            self._rows = self._row_tables(source, names)
        elif source.topics is not None:
            self._require_own_tables_used(tuple(source.topics))
        self._require_own_tables(str(checkpoint_location), names)
        stream = direct_stream(SparkSession.builder.getOrCreate(), source, str(checkpoint_location), trigger)
        query = start_query(
            lambda frame, at: self._write(source, stream.offsets, frame, at),
            stream.frame,
            checkpoint_location=checkpoint_location,
            trigger=stream.trigger,
            query_name=query_name,
            output_mode="append",
            sink=self,
        )
        return DirectQuery(query, stream.offsets)

    def interrupt(self, job_id: str) -> None:
        """Stop waiting, as the query ends; see SinkState."""
        for member in list(self._members.values()):
            member.sink.interrupt(job_id)

    def finish(self, job_id: str) -> BaseException | None:
        """Finish the commits in all queues; see SinkState."""
        errors = [member.sink.finish(job_id) for member in list(self._members.values())]
        first = next((error for error in errors if error is not None), None)
        self.error = first or self.error
        return first

    @property
    def quarantine(self) -> Mapping[str, Quarantined]:
        """The tables in quarantine, by name."""
        return {} if self._aside is None else dict(self._aside.entries)

    def _write(
        self, source: KafkaSource, offsets: DirectOffsets, frame: DataFrame, checkpoint_id: int
    ) -> None:
        try:
            with short_interruptions():
                idle = WhileIdle(
                    lambda: self._known(source, offsets, frame, checkpoint_id),
                    frame,
                    checkpoint_id,
                    self._is_one_tables,
                )
                self._written = self._written or WrittenTables.of(frame, checkpoint_id)
                offsets.plan(frame, checkpoint_id, idle)
                identity = checkpoint_identity(frame, checkpoint_id)
                offsets.confirm(identity)
                step = Step.of(identity)
                aside = self._aside = self._aside or Quarantine.of(frame, identity)
                if self._is_first:
                    self._bind(frame, identity)
                if self._rows is not None:
                    ended = self._rows.write(frame, identity, offsets, step, aside, is_first=self._is_first)
                    self._is_first = False
                    names = {name: ended.topics[name] for name in ended.endings}
                    self._deliver(names, list(ended.endings.values()), identity, step, ended.errors)
                    return
                names = self._due(step, aside)
                members = self._met(source, names)
                due = [member for member in members if not isinstance(member, StreamlakeError)]
                missed = missed_ranges(aside.retried(frame, due, identity).values(), step.begin)
                tables = [member.table for member in due]
                written = iter(write_direct(tables, frame, identity, offsets, missed))
            endings = [member if isinstance(member, StreamlakeError) else next(written) for member in members]
            self._is_first = False
            self._deliver(names, endings, identity, step)
        except StreamlakeError as error:
            self.error = error
            raise

    def _known(
        self, source: KafkaSource, offsets: DirectOffsets, frame: DataFrame, checkpoint_id: int
    ) -> list[DirectTable]:
        """In the first micro-batch, the tables of the records that were read before this run; then the
        discovered ones.
        """
        if self._is_first and offsets.done is not None:
            assert self._names is not None
            if self._rows is not None:
                read = {topic for topic, _ in offsets.done.positions}
                errors = self._rows.meet_again(frame, checkpoint_identity(frame, checkpoint_id), read)
            else:
                topics: dict[str, set[str]] = {}
                for topic, _ in offsets.done.positions:
                    topics.setdefault(self._names.of(topic), set()).add(topic)
                met = self._met(source, {name: tuple(sorted(of)) for name, of in topics.items()})
                errors = [each for each in met if isinstance(each, StreamlakeError)]
            for error in errors:
                if not self._is_one_tables(error):
                    raise error
        return [member.table for member in list(self._members.values())]

    def _is_one_tables(self, error: StreamlakeError) -> bool:
        """Whether an error puts its table into quarantine and leaves the query to the others."""
        return self._quarantines and isinstance(error, FINAL_ERRORS)

    def _deliver(
        self,
        names: Mapping[str, tuple[str, ...]],
        endings: Sequence[Ending],
        identity: CheckpointIdentity,
        step: Step,
        beside: Mapping[str, StreamlakeError] | None = None,
    ) -> None:
        """Pass on receipts, and put failed tables into quarantine. `beside`: errors that hinder several
        tables at once, so that no single table can be put into quarantine for them.
        """
        assert self._aside is not None
        errors = dict(beside or {})
        aside = dict(self._aside.entries)
        for (name, topics), ending in zip(names.items(), endings, strict=True):
            if not isinstance(ending, StreamlakeError):
                aside.pop(name, None)
                if ending is not None:
                    self._delivered(replace(ending, table=name))
            elif self._is_one_tables(ending):
                entry = quarantined(
                    identity.checkpoint_id, step.begin, topics, ending, clock.now_ms(), step.topic_ids
                )
                aside[name] = replace(aside.get(name, entry), error=entry.error, retried_at=None)
                _LOG.error("table %s is set aside from %s on: %s", name, identity, ending)
            else:
                errors[name] = ending
        self._aside.keep(aside)
        if errors:
            _raise_first(errors, len(names) + len(beside or {}))
        self._keep_written(names, identity)

    def _keep_written(self, names: Iterable[str], identity: CheckpointIdentity) -> None:
        """Log the last checkpoint that was written to each table; Spark counts this one as done next."""
        assert self._written is not None
        runs = {}
        for name in names:
            member = self._members.get(name)
            run = None if member is None else member.sink.run_of(identity.job_id)
            if run is not None:
                runs[noted_table(name, self._catalog)] = run
        self._written.keep(identity, runs)

    def _delivered(self, receipt: CommitReceipt) -> None:
        self.receipts.append(receipt)
        if self._on_commit is not None:
            self._on_commit(receipt)

    def _due(self, step: Step, aside: Quarantine) -> dict[str, tuple[str, ...]]:
        """The tables that have records in this checkpoint, with all their topics. In the first micro-batch
        all tables, because one may have something staged; those in quarantine are retried then, and not
        later.
        """
        assert self._names is not None
        topics: dict[str, set[str]] = {}
        moved = set()
        for topic, partition in step.end:
            name = self._names.of(topic)
            topics.setdefault(name, set()).add(topic)
            if self._is_first or step.has_moved(topic, partition):
                moved.add(name)
        if not self._is_first:
            moved -= aside.entries.keys()
            aside.pass_over(step, topics)
        return {name: tuple(sorted(of)) for name, of in topics.items() if name in moved}

    def _met(
        self, source: KafkaSource, names: Mapping[str, tuple[str, ...]]
    ) -> list[TableMember | StreamlakeError]:
        """The members for these tables, made at first sight."""

        def met(part: tuple[str, tuple[str, ...]]) -> TableMember:
            name, topics = part
            known = self._members.get(name)
            if known is not None and known.topics == topics:
                return known
            sink = self._sink(name) if known is None else known.sink
            own = sink.prepared(replace(source, topics=topics, topic_pattern=None))
            return TableMember(name, sink, topics, DirectTable(sink, own, topics))

        members = in_parallel(list(names.items()), met)
        for name, member in zip(names, members, strict=True):
            if not isinstance(member, StreamlakeError):
                self._members[name] = member
        return members

    def _row_tables(self, source: KafkaSource, names: TableNames) -> RowTables:
        """Raises InvalidOptionError for fields that the template or `route` needs and the rows lack, where
        columns are known.
        """
        default = self._default_table
        function = self._route
        if source.schema is not None:
            RowRoute(self.table, function).check(source.table_schema)
        options = RowTableOptions(
            names,
            lambda template: RowRoute(template, function),
            None if default is None else TableNames(default, source.topic_pattern),
            self._max_tables,
        )
        return RowTables(source, options, self._sink, self._catalog, self._members)

    def _sink(self, name: str) -> IcebergSink:
        own = {"mode": self._mode, **self._settings, **self._own_settings.get(name, {})}
        sink = IcebergSink(name, self._catalog, own.pop("mode"), **own)
        sink.calls = Calls.QUERY
        sink.written = self._last_written
        return sink

    def _last_written(self, table: str, branch: str) -> int:
        return NO_CHECKPOINT if self._written is None else self._written.last(table, branch)

    @property
    def _bound(self) -> BoundTables:
        """The template, as a checkpoint directory records it."""
        branch = str(self._settings.get("branch", MAIN_BRANCH))
        return BoundTables(self.table, branch, self._default_table)

    def _require_own_tables(self, location: str, names: TableNames) -> None:
        """Raises LineageError where the directory has read records for other tables."""
        directory = directory_at(SparkSession.builder.getOrCreate(), location, is_direct=True)
        bound = self._bound
        found = None if directory is None else tables_finding(directory, bound, names, self._catalog)
        if found is not None and directory is not None:
            command = template_command(self.table, bound.branch, self._catalog, directory.location)
            raise lineage_error(found, command)

    def _bind(self, frame: DataFrame, identity: CheckpointIdentity) -> None:
        """Record the tables' template in the checkpoint directory."""
        file = CheckpointFile(frame.sparkSession, query_run(frame, identity.job_id).checkpoint, BOUND_PATH)
        content = bound_to(file.read(), self._bound)
        if content is not None:
            file.write(content)

    def _require_own_tables_used(self, topics: Sequence[str]) -> None:
        """Where all topics are known, so are all tables: settings for any other table are a mistake."""
        assert self._names is not None
        known = [self._names.of(topic) for topic in topics]
        for name in self._own_settings:
            if name not in known:
                near = suggestion(name, known)
                hint = f"did you mean '{near}'?" if near else f"the tables are {', '.join(known)}"
                raise InvalidOptionError(f"tables has '{name}', which is the table of no topic; {hint}")


def _raise_first(errors: Mapping[str, StreamlakeError], tables: int) -> None:
    """Raise the error of one table, with the number of others that failed and that committed."""
    name, error = next(iter(errors.items()))
    if tables == 1:
        raise error
    others = tables - len(errors)
    also = f", as did {len(errors) - 1} more" if len(errors) > 1 else ""
    raise type(error)(
        f"the table '{name}' stopped the query{also}; {others} other tables are committed up to here, and "
        f"the next start writes only what is missing: {error}"
    ) from error
