"""IcebergSink: the sink that a user passes to `foreachBatch`, and `start`, which does that in one call."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import Calls, Noted
from streamlake.commit.committer import OVERWRITES
from streamlake.commit.findings import table_gone
from streamlake.commit.lineage import Finding, lineage_error
from streamlake.commit.receipt import CommitReceipt
from streamlake.commit.unnamed import files_summary, require_unread
from streamlake.errors import (
    InvalidOptionError,
    StreamlakeError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.failpoints import failpoint
from streamlake.pipeline.kafka.direct_offsets import DirectOffsets
from streamlake.pipeline.kafka.direct_query import DirectQuery, direct_stream
from streamlake.pipeline.runs.commit_queue import CommitQueue, queue_limit
from streamlake.pipeline.runs.direct_tables import DirectTable, write_direct
from streamlake.pipeline.runs.evolution import EvolutionOptions, renamed
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.lineage.lineage_check import KnownDirectory, uncovered
from streamlake.pipeline.runs.micro_batch import run_micro_batch
from streamlake.pipeline.runs.rejects import FAIL, REJECT, require_policy, require_records
from streamlake.pipeline.runs.rejects_run import RejectsRun
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.turns import turn
from streamlake.pipeline.runs.upsert_options import (
    UpsertOptions,
    key_schema,
    require_delete_mode,
)
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.sinks.before_start import commit_before_start
from streamlake.pipeline.sinks.bound_directory import directory_at, pipeline_name, require_own_table
from streamlake.pipeline.sinks.default_sequence import named_sequence
from streamlake.pipeline.sinks.prepared_source import Changes, prepared_source, require_changes
from streamlake.pipeline.sinks.shown_sinks import ShownSink
from streamlake.pipeline.sinks.sink_modes import UPSERT_MODES, check_mode
from streamlake.pipeline.sinks.unused_properties import tell_unused
from streamlake.pipeline.sinks.while_idle import WhileIdle
from streamlake.pipeline.spark.interruption import MicroBatchInterruptedError, short_interruptions
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.pipeline.spark.query_identity import (
    QueryRun,
    checkpoint_identity,
    files_read,
    query_run,
    require_lasting,
)
from streamlake.pipeline.spark.start import start_query
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.types.schema import Schema
from streamlake.storage.locations import noted_table
from streamlake.table.table import Table
from streamlake.tables import create_table, table_schema
from streamlake.write.target.job_options import JobOptions
from streamlake.write.upsert.upsert_target import POSITION

_LOG = logging.getLogger(__name__)

RECEIPTS_KEPT = 200


class IcebergSink(ShownSink):
    """Writes the micro-batches of one streaming query to one branch of one Iceberg table, each exactly once.

    `table` is the location of a Hadoop table, or a "db.name" with `catalog`. `create` makes the table on the
    first micro-batch if there is none, with `partition_by`, `sort_by`, `format_version` (None: 3 for upserts
    by position, else 2) and `properties`. `sequence_by` names the columns that order the changes of a key;
    none of them ("none", or empty) means the order of arrival (None: the position in the database's log for
    Debezium's changes, else the order of arrival). `pipeline` names the stream across checkpoint directories.

    Every `max_continuous_empty_commits`-th empty checkpoint in a row is committed too, so that the commit
    marker in the table advances. `max_pending_checkpoints` may be staged before they are committed (None: the
    table's property `commit.max-pending-checkpoints`, else 1). `on_error` decides about records of a
    KafkaSource that cannot become rows: "fail" stops the stream, "reject" writes them to the table's rejects,
    at most `max_rejects` per checkpoint (None: any number). `schema_evolution` ("none", "add", "full"; None:
    the table's property `streamlake.schema-evolution`, else "none") sets how far the table's schema follows
    the stream's; `rename_columns` renames columns of the table once. `write_options` and `write_parallelism`:
    see JobOptions. Raises InvalidOptionError for arguments that contradict each other.

    Args:
        may_join: Whether a function for `foreachBatch` calls the sink for some micro-batches only, or from a
            later one on. Without it, a table that lacks what the query has read before is refused.
        on_commit: Called on the driver with the CommitReceipt of every checkpoint.
    """

    def __init__(  # noqa: PLR0913
        self,
        table: str,
        catalog: str | Mapping[str, str] | None = None,
        mode: str = "append",
        *,
        create: bool = False,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        format_version: int | None = None,
        properties: Mapping[str, str] | None = None,
        key: Sequence[str] = (),
        sequence_by: Sequence[str] | None = None,
        row_kind: str | None = None,
        delete_mode: str | None = None,
        pipeline: str | None = None,
        branch: str = MAIN_BRANCH,
        max_continuous_empty_commits: int = 10,
        max_pending_checkpoints: int | None = None,
        schema_evolution: str | None = None,
        rename_columns: Mapping[str, str] | None = None,
        on_error: str = FAIL,
        max_rejects: int | None = None,
        write_options: Mapping[str, Any] | None = None,
        write_parallelism: int | None = None,
        may_join: bool = False,
        on_commit: Callable[[CommitReceipt], None] | None = None,
    ) -> None:
        check_mode(mode, key=key, sequence_by=sequence_by, row_kind=row_kind, delete_mode=delete_mode)
        if max_continuous_empty_commits < 1:
            raise InvalidOptionError(
                f"max_continuous_empty_commits is {max_continuous_empty_commits}; it must be at least 1"
            )
        require_policy(on_error, max_rejects)
        if schema_evolution is not None:
            EvolutionOptions.of(schema_evolution, rename_columns, {})
        queue_limit(max_pending_checkpoints, {}, delete_mode or POSITION if mode in UPSERT_MODES else None)
        if not create and (partition_by or sort_by or format_version is not None or properties):
            raise InvalidOptionError(
                "partition_by, sort_by, format_version and properties describe a table that is created; "
                "pass create=True as well, or change the existing table instead"
            )
        self.table = str(table)
        self.catalog = catalog
        self.mode = mode
        self.create = create
        self.partition_by = tuple([partition_by] if isinstance(partition_by, str) else partition_by)
        self.sort_by = tuple([sort_by] if isinstance(sort_by, str) else sort_by)
        self.key = tuple([key] if isinstance(key, str) else key)
        self._sequence_given = named_sequence(sequence_by)
        self.sequence_by = self._sequence_given or ()
        self.row_kind = row_kind
        self.delete_mode = require_delete_mode(delete_mode or POSITION)
        self.format_version = format_version
        self.properties = dict(properties or {})
        self.pipeline = pipeline
        self.branch = branch
        self.receipts: deque[CommitReceipt] = deque(maxlen=RECEIPTS_KEPT)
        self.error: BaseException | None = None
        self.max_continuous_empty_commits = max_continuous_empty_commits
        self.max_pending_checkpoints = max_pending_checkpoints
        self.schema_evolution = schema_evolution
        self.rename_columns = dict(rename_columns or {})
        self.on_error = on_error
        self.max_rejects = max_rejects
        self.job = JobOptions.of(write_options, write_parallelism)
        self.calls = Calls.QUERY if may_join else Calls.FUNCTION
        """For which checkpoints of its query the table is called."""
        self.written: Callable[[str, str], int] | None = None
        """Gives the last checkpoint that its query has written to a table and branch; None where the query
        logs no tables."""
        self._on_commit = on_commit
        self._runs: dict[str, SinkRun] = {}
        self._opening: dict[str, OutageRetry] = {}
        self._warned: set[str] = set()

    def __call__(self, frame: DataFrame, checkpoint_id: int) -> None:
        """Write one micro-batch; Spark calls this. Raises the errors of `streamlake.errors`; `error` keeps
        the last since `start`.
        """
        with self._keeping_errors():
            require_records(self.on_error)
            run, identity = self.opened(frame, checkpoint_identity(frame, checkpoint_id), frame.schema)
            with turn(run, identity, frame):
                receipt = run_micro_batch(run, frame, identity)
        if receipt is not None:
            self.deliver(receipt)

    def start(
        self,
        source: DataFrame | KafkaSource,
        *,
        checkpoint_location: str,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        output_mode: str = "append",
    ) -> Any:
        """Start the query and return it (the StreamingQuery interface).

        `source` is a streaming DataFrame, or a KafkaSource for the direct path. `trigger` takes the arguments
        of `DataStreamWriter.trigger`, for example `{"availableNow": True}` or `{"processingTime": "10
        seconds"}`.
        """
        self.error = None
        self.calls = Calls.EVERY
        with self._keeping_errors():
            session = SparkSession.builder.getOrCreate()
            outage_retry = OutageRetry(lambda: self.properties)
            directory = directory_at(session, checkpoint_location, is_direct=isinstance(source, KafkaSource))

            def opened() -> Table:
                return outage_retry.through(lambda: open_table(self.table, self.catalog))

            require_own_table(directory, self, opened)
            if not isinstance(source, KafkaSource):
                require_records(self.on_error)
                commit_before_start(session, str(checkpoint_location), directory, self, opened)
        if isinstance(source, KafkaSource):
            return self._start_direct(source, checkpoint_location, trigger, query_name)
        return start_query(
            self,
            source,
            checkpoint_location=checkpoint_location,
            trigger=trigger,
            query_name=query_name,
            output_mode=output_mode,
            sink=self,
        )

    def _start_direct(
        self,
        source: KafkaSource,
        checkpoint_location: str,
        trigger: Mapping[str, Any] | None,
        name: str | None,
    ) -> DirectQuery:
        known = self.prepared(source)
        table = DirectTable(self, known)
        stream = direct_stream(SparkSession.builder.getOrCreate(), known, str(checkpoint_location), trigger)
        query = start_query(
            lambda frame, at: self._write_direct(table, stream.offsets, frame, at),
            stream.frame,
            checkpoint_location=checkpoint_location,
            trigger=stream.trigger,
            query_name=name,
            output_mode="append",
            sink=self,
        )
        return DirectQuery(query, stream.offsets)

    def prepared(self, source: KafkaSource) -> KafkaSource:
        """The source with its schema, as `prepared_source` finds it; the sink takes over its key, row kind
        and order of changes.

        Raises InvalidOptionError for a source that does not fit the mode, and what reading a sample raises.
        """
        changes = Changes(self.mode, self.delete_mode, self.key, self.row_kind, self._sequence_given)
        require_changes(source, changes)
        try:
            table = OutageRetry(lambda: self.properties).through(lambda: open_table(self.table, self.catalog))
        except TableNotFoundError:
            table = None
        prepared = prepared_source(source, changes, table)
        self.key, self.row_kind, self.sequence_by = prepared.key, prepared.row_kind, prepared.sequence_by
        return prepared.source

    def _write_direct(
        self, table: DirectTable, offsets: DirectOffsets, frame: DataFrame, checkpoint_id: int
    ) -> None:
        with self._keeping_errors():
            offsets.plan(frame, checkpoint_id, WhileIdle(lambda: [table], frame, checkpoint_id))
            identity = checkpoint_identity(frame, checkpoint_id)
            offsets.confirm(identity)
            ending = write_direct([table], frame, identity, offsets)[0]
            if isinstance(ending, StreamlakeError):
                raise ending
        if ending is not None:
            self.deliver(ending)

    @contextlib.contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        try:
            with short_interruptions():
                yield
        except StreamlakeError as error:
            self.error = error
            raise

    def opened(
        self, frame: DataFrame, identity: CheckpointIdentity, schema: Any
    ) -> tuple[SinkRun, CheckpointIdentity]:
        """The state of the query that `frame` belongs to, and the checkpoint's identity in the table. The
        first micro-batch of a run opens the table, or creates it for `schema` if it may.
        """
        identity = replace(identity, pipeline=pipeline_name(self, identity.job_id))
        run = self._run(frame, identity, schema)
        return run, run.named(identity)

    def run_of(self, job_id: str) -> SinkRun | None:
        """The state of a query that has had a micro-batch; None for any other."""
        return self._runs.get(job_id)

    def deliver(self, receipt: CommitReceipt) -> None:
        """Keep the receipt, and pass it to `on_commit`."""
        self.receipts.append(receipt)
        if self._on_commit is not None:
            self._on_commit(receipt)

    def interrupt(self, job_id: str) -> None:
        """Stop waiting, as the query ends; see SinkState."""
        if (opening := self._opening.get(job_id)) is not None:
            opening.stop()
        run = self._runs.get(job_id)
        if run is not None:
            run.interrupt()

    def finish(self, job_id: str) -> BaseException | None:
        """Finish the commits in the queue; see SinkState."""
        run = self._runs.get(job_id)
        error = None if run is None or run.queue is None else run.queue.drain()
        if error is None or isinstance(error, MicroBatchInterruptedError):
            return None
        self.error = error
        return error

    def _run(self, frame: DataFrame, identity: CheckpointIdentity, schema: Any) -> SinkRun:
        """The state of the query's present run; rebuilt from what is durable after each restart."""
        query = query_run(frame, identity.job_id)
        run = self._runs.get(identity.job_id)
        if run is None or run.run_id != query.run_id:
            self.interrupt(identity.job_id)
            self.finish(identity.job_id)
            require_lasting(query)
            name = noted_table(self.table, self.catalog)
            note = CheckpointTable(frame.sparkSession, query.checkpoint, name, self.branch, self.catalog)
            run = self._opened(query, note, identity, schema, frame.sparkSession)
            self._runs[identity.job_id] = run
        if self.mode in UPSERT_MODES and not self.sequence_by and query.run_id not in self._warned:
            self._warn_of_files(query, identity)
        return run

    def _warn_of_files(self, query: QueryRun, identity: CheckpointIdentity) -> None:
        """Warn once per run that nothing orders the changes of several files in one micro-batch."""
        count = query.logged.most_files(identity.end_offsets)
        if count > 1:
            self._warned.add(query.run_id)
            _LOG.warning(
                "%s: %s reads %d files in one micro-batch and has no sequence_by: where several of them "
                "change one key, any of "
                "their changes may win, because Spark reads the files of a micro-batch in an order of its "
                "own, larger ones "
                "first. Name the columns that order changes in sequence_by, or set "
                '.option("maxFilesPerTrigger", 1) on the stream',
                self.table,
                identity,
                count,
            )

    def _opened(
        self,
        query: QueryRun,
        note: CheckpointTable,
        identity: CheckpointIdentity,
        schema: Any,
        session: SparkSession,
    ) -> SinkRun:
        """A run on the table. Raises where the checkpoint directory records another table."""
        noted = note.read()
        refusal = self._refusal(note, noted, identity)
        outage_retry = self._opening[identity.job_id] = OutageRetry(lambda: self.properties)
        try:
            table = outage_retry.through(lambda: self._table(schema, create=self.create and refusal is None))
        except TableNotFoundError:
            if refusal is None:
                raise
            raise lineage_error(refusal, replace(note.command, pipeline=identity.pipeline)) from None
        finally:
            del self._opening[identity.job_id]
        summary = {} if self.pipeline else self._unnamed(table, noted, identity, session)
        if noted is not None:
            identity = replace(identity, pipeline=noted.pipelines.get(identity.pipeline, identity.pipeline))
        run = self.new_run(table, note, query.run_id, identity, session)
        run.summary = summary
        if self.on_error == REJECT:
            run.rejects = RejectsRun(
                self.table,
                self.catalog,
                self.max_rejects,
                job_id=identity.job_id,
                run_id=query.run_id,
                outage_retry=run.outage_retry,
            )
        run.written_before = None if self.written is None else self.written(note.command.table, self.branch)
        run.remember(noted, identity, query.logged.of)
        return run

    def _refusal(
        self, note: CheckpointTable, noted: Noted | None, identity: CheckpointIdentity
    ) -> Finding | None:
        """Why no table may be created for the query: it had one before, or another one. None: it may."""
        if not identity.checkpoint_id:
            return None
        if noted is not None:
            return table_gone(self.table, noted.table_uuid)
        directory = KnownDirectory(None, identity.checkpoint_id, None, note.others, self.calls)
        return uncovered(self.table, None, directory)

    def _unnamed(
        self, table: Table, noted: Noted | None, identity: CheckpointIdentity, session: SparkSession
    ) -> dict[str, str]:
        """What the commits of a stream without a name record about its source. Raises LineageError where
        another stream without a name has written the same before.
        """
        files = files_read(session, identity.job_id)
        if noted is None and not identity.checkpoint_id and self.mode not in OVERWRITES:
            require_unread(table.metadata, self.branch, identity, files)
        return files_summary(files)

    def new_run(
        self,
        table: Table,
        note: CheckpointTable,
        run_id: str,
        identity: CheckpointIdentity,
        session: SparkSession,
    ) -> SinkRun:
        """The state of a run that starts on an open table."""
        self.job.check(table.properties)
        evolution = EvolutionOptions.of(self.schema_evolution, self.rename_columns, table.properties)
        renamed(table, evolution)
        settings = RunSettings(
            job_id=identity.job_id,
            run_id=run_id,
            branch=self.branch,
            mode=self.mode,
            max_continuous_empty_commits=self.max_continuous_empty_commits,
            queue=self._queue(table),
            command=note.command,
            evolution=evolution,
            calls=self.calls,
            job=self.job,
        )
        if self.mode not in UPSERT_MODES:
            return SinkRun(table, note, settings)
        options = UpsertOptions.of(
            table,
            key=self.key,
            sequence_by=self.sequence_by,
            row_kind=self.row_kind,
            delete_mode=self.delete_mode,
            parallelism=max(session.sparkContext.defaultParallelism, 1),
            write_parallelism=self.job.parallelism,
        )
        return UpsertRun(table, note, session, options, settings)

    def _queue(self, table: Table) -> CommitQueue | None:
        limit = queue_limit(
            self.max_pending_checkpoints,
            table.properties,
            self.delete_mode if self.mode in UPSERT_MODES else None,
        )
        return CommitQueue(limit, self.deliver) if limit > 1 else None

    def _table(self, schema: Any, *, create: bool) -> Table:
        try:
            table = open_table(self.table, self.catalog)
        except TableNotFoundError:
            if not create:
                raise
        else:
            tell_unused(table, self.properties)
            return table
        self.job.check(self.properties)
        # Another job may create it in between; then this one writes to that table.
        with contextlib.suppress(TableAlreadyExistsError):
            create_table(
                self.table,
                self._created_schema(schema),
                catalog=self.catalog,
                partition_by=self.partition_by,
                sort_by=self.sort_by,
                format_version=self.format_version or self._default_format_version,
                properties=self.properties,
            )
            failpoint("table-created")
        return open_table(self.table, self.catalog)

    @property
    def _default_format_version(self) -> int:
        return 3 if self.mode in UPSERT_MODES and self.delete_mode == POSITION else 2

    def _created_schema(self, schema: Any) -> Schema:
        """The stream's schema for the table: the key as identifier fields, without the row kind."""
        columns = table_schema(schema)
        if self.mode not in UPSERT_MODES:
            return columns
        return key_schema(columns, self.key, self.row_kind, self.table)
