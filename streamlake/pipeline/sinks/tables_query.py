"""A query of IcebergTables: its tables, discovered with their first records, and its micro-batches.

Place in the flow: from the start of a query on, on the driver. A topic is discovered with its first offsets;
its table is opened, or created from the template. Tables that rows name are left to `row_tables`. Invariant:
a micro-batch is done when every table that had records in it is; a replay does not write again what a table
has committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from streamlake import clock
from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT, Calls
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.maintain.background.maintenance_worker import MaintenanceWorker
from streamlake.pipeline.kafka.checkpoint_step import Step
from streamlake.pipeline.kafka.direct_offsets import DirectOffsets
from streamlake.pipeline.runs.direct_tables import DirectTable, write_direct
from streamlake.pipeline.runs.parallel import Ending, in_parallel
from streamlake.pipeline.sinks.bound_tables import BOUND_PATH, BoundTables, bound_to
from streamlake.pipeline.sinks.prepared_source import prepared_source
from streamlake.pipeline.sinks.quarantine import Quarantined, missed_ranges, quarantined
from streamlake.pipeline.sinks.query_runs import QueryRuns
from streamlake.pipeline.sinks.row_tables import RowTableOptions, RowTables
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.sinks.table_quarantine import Quarantine
from streamlake.pipeline.sinks.table_stream import TableMember, TableStream
from streamlake.pipeline.sinks.while_idle import WhileIdle
from streamlake.pipeline.sinks.written_tables import WrittenTables
from streamlake.pipeline.spark.checkpoint_file import CheckpointFile
from streamlake.pipeline.spark.interruption import short_interruptions
from streamlake.pipeline.spark.query_identity import checkpoint_identity, query_run
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.storage.locations import noted_table
from streamlake.tasks.row_names import RouteFunction, RowRoute
from streamlake.tasks.table_names import TableNames, unused_settings
from streamlake.tasks.task_errors import FINAL_ERRORS

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TablesSettings:
    """What IcebergTables was given. `common` are arguments of each table's IcebergSink, `own` those of single
    tables, by name. `quarantines`: a table that cannot be written does not end the query.
    """

    table: str
    catalog: CatalogOption
    mode: str
    common: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]
    route: RouteFunction | None
    default_table: str | None
    max_tables: int
    quarantines: bool

    def sink(self, name: str, on_commit: Callable[[CommitReceipt], None] | None = None) -> IcebergSink:
        """The sink of a table. Raises InvalidOptionError."""
        own = {"mode": self.mode, **self.common, **self.own.get(name, {})}
        return IcebergSink(name, self.catalog, own.pop("mode"), **own, on_commit=on_commit)

    @property
    def bound(self) -> BoundTables:
        """The template, as a checkpoint directory records it."""
        return BoundTables(self.table, str(self.common.get("branch", MAIN_BRANCH)), self.default_table)

    def row_options(self, source: KafkaSource, names: TableNames) -> RowTableOptions:
        """How rows find their tables. Raises InvalidOptionError for fields that the template or `route` needs
        and the rows lack, where columns are known.
        """
        function, default = self.route, self.default_table
        if source.schema is not None:
            RowRoute(self.table, function).check(source.table_schema)
        return RowTableOptions(
            names,
            lambda template: RowRoute(template, function),
            None if default is None else TableNames(default, source.topic_pattern),
            self.max_tables,
        )

    def require_own_used(self, known: Sequence[str], later: TableNames | None = None) -> None:
        """Settings for another table than the known ones are a mistake, except for those that `later` may
        name once there is a topic for them: then they are a warning. Raises InvalidOptionError.
        """
        for name in self.own:
            if name in known:
                continue
            if later is None or not later.may_be(name):
                raise InvalidOptionError(unused_settings(name, known))
            _LOG.warning("%s (a topic that is created later may give it)", unused_settings(name, known))


class TablesQuery:
    """One query; `deliver` gets the receipts of its tables. Raises InvalidOptionError."""

    def __init__(
        self, settings: TablesSettings, source: KafkaSource, deliver: Callable[[CommitReceipt], None]
    ) -> None:
        self.names = TableNames(settings.table, source.topic_pattern, has_route=settings.route is not None)
        self.error: BaseException | None = None
        self._settings = settings
        self._source = source
        self._deliver_one = deliver
        self._made: dict[QueryRuns, IcebergSink] = {}
        self._members: dict[str, TableMember] = {}
        self._worker = MaintenanceWorker()
        self._is_first = True
        self._aside: Quarantine | None = None
        self._written: WrittenTables | None = None
        self._rows: RowTables | None = None
        if self.names.by_row:
            options = settings.row_options(source, self.names)
            self._rows = RowTables(source, options, self._stream, settings.catalog, self._members)

    @property
    def sinks(self) -> dict[str, IcebergSink]:
        """The sinks of the discovered tables, by the tables' names."""
        return {name: self._made[member.stream.runs] for name, member in self._members.items()}

    @property
    def quarantine(self) -> Mapping[str, Quarantined]:
        """The tables in quarantine, by name."""
        return {} if self._aside is None else dict(self._aside.entries)

    @property
    def maintained(self) -> tuple[TableUpkeep, ...]:
        """The state of the maintenance of the tables."""
        return self._worker.shown()

    def interrupt(self, job_id: str) -> None:
        """Stop waiting, as the query ends; see SinkState."""
        self._worker.stop()
        for member in list(self._members.values()):
            member.stream.runs.interrupt(job_id)

    def finish(self, job_id: str) -> BaseException | None:
        """Finish the commits in all queues; see SinkState."""
        errors = [member.stream.runs.finish(job_id) for member in list(self._members.values())]
        first = next((error for error in errors if error is not None), None)
        self.error = first or self.error
        self._worker.stop()
        return first

    def write(self, offsets: DirectOffsets, frame: DataFrame, checkpoint_id: int) -> None:
        """Write one micro-batch; Spark calls this. Raises the errors of `streamlake.errors`."""
        try:
            with short_interruptions():
                idle = WhileIdle(
                    lambda: self._known(offsets, frame, checkpoint_id),
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
                members = self._met(names)
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

    def _known(self, offsets: DirectOffsets, frame: DataFrame, checkpoint_id: int) -> list[DirectTable]:
        """In the first micro-batch, the tables of the records that were read before this run; then the
        discovered ones.
        """
        if self._is_first and offsets.done is not None:
            if self._rows is not None:
                read = {topic for topic, _ in offsets.done.positions}
                errors = self._rows.meet_again(frame, checkpoint_identity(frame, checkpoint_id), read)
            else:
                topics: dict[str, set[str]] = {}
                for topic, _ in offsets.done.positions:
                    topics.setdefault(self.names.of(topic), set()).add(topic)
                met = self._met({name: tuple(sorted(of)) for name, of in topics.items()})
                errors = [each for each in met if isinstance(each, StreamlakeError)]
            for error in errors:
                if not self._is_one_tables(error):
                    raise error
        return [member.table for member in list(self._members.values())]

    def _is_one_tables(self, error: StreamlakeError) -> bool:
        """Whether an error puts its table into quarantine and leaves the query to the others."""
        return self._settings.quarantines and isinstance(error, FINAL_ERRORS)

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
                    self._members[name].stream.runs.maintain(ending)
                    self._deliver_one(replace(ending, table=name))
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
            run = None if member is None else member.stream.runs.by_job.get(identity.job_id)
            if run is not None:
                runs[noted_table(name, self._settings.catalog)] = run
        self._written.keep(identity, runs)

    def _due(self, step: Step, aside: Quarantine) -> dict[str, tuple[str, ...]]:
        """The tables that have records in this checkpoint, with all their topics. In the first micro-batch
        all tables, because one may have something staged; those in quarantine are retried then, and not
        later.
        """
        topics: dict[str, set[str]] = {}
        moved = set()
        for topic, partition in step.end:
            name = self.names.of(topic)
            topics.setdefault(name, set()).add(topic)
            if self._is_first or step.has_records(topic, partition):
                moved.add(name)
        if not self._is_first:
            moved -= aside.entries.keys()
            aside.pass_over(step, topics)
        return {name: tuple(sorted(of)) for name, of in topics.items() if name in moved}

    def _met(self, names: Mapping[str, tuple[str, ...]]) -> list[TableMember | StreamlakeError]:
        """The members for these tables, made at first sight."""

        def met(part: tuple[str, tuple[str, ...]]) -> TableMember:
            name, topics = part
            known = self._members.get(name)
            if known is not None and known.topics == topics:
                return known
            stream = self._stream(name) if known is None else known.stream
            source = replace(self._source, topics=topics, topic_pattern=None)
            settings, own = prepared_source(stream.settings, source)
            stream = stream.resolved(settings)
            return TableMember(name, stream, topics, DirectTable(stream, own, topics))

        members = in_parallel(list(names.items()), met)
        for name, member in zip(names, members, strict=True):
            if not isinstance(member, StreamlakeError):
                self._members[name] = member
        return members

    def _stream(self, name: str) -> TableStream:
        # Receipts of commits in a queue come from there; all others through `_deliver`.
        sink = self._settings.sink(name, lambda receipt: self._deliver_one(replace(receipt, table=name)))
        stream = sink.stream(Calls.QUERY, self._last_written)
        stream.runs.share(self._worker)
        self._made[stream.runs] = sink
        return stream

    def _last_written(self, table: str, branch: str) -> int:
        return NO_CHECKPOINT if self._written is None else self._written.last(table, branch)

    def _bind(self, frame: DataFrame, identity: CheckpointIdentity) -> None:
        """Record the tables' template in the checkpoint directory."""
        file = CheckpointFile(frame.sparkSession, query_run(frame, identity.job_id).checkpoint, BOUND_PATH)
        content = bound_to(file.read(), self._settings.bound)
        if content is not None:
            file.write(content)


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
