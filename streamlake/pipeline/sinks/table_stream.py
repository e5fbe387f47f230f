"""A table of a query: how it is opened or created for the first micro-batch, and its run from then on.

Place in the flow: made by a sink that is called or started, from its settings resolved for that. Invariant: a
checkpoint directory that records another table, or had one that is gone, gets no new table in its place.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import Noted
from streamlake.commit.committer import OVERWRITES
from streamlake.commit.findings import table_gone
from streamlake.commit.lineage import Finding, lineage_error
from streamlake.commit.unnamed import files_summary, require_unread
from streamlake.errors import TableAlreadyExistsError, TableNotFoundError
from streamlake.failpoints import failpoint
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.runs.direct_tables import DirectTable
from streamlake.pipeline.runs.evolution import EvolutionOptions, renamed
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.lineage.lineage_check import KnownDirectory, uncovered
from streamlake.pipeline.runs.rejected.rejects_run import RejectsRun
from streamlake.pipeline.runs.rejects import REJECT
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_options import UpsertOptions
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.sinks.arguments.unused_properties import tell_unused
from streamlake.pipeline.sinks.bound_directory import pipeline_name
from streamlake.pipeline.sinks.query_runs import QueryRuns
from streamlake.pipeline.sinks.sink_settings import NewTable, SinkSettings, require_row_kind
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.pipeline.spark.query_identity import QueryRun, files_read, query_run, require_lasting
from streamlake.storage.locations import noted_table
from streamlake.table.table import Table
from streamlake.tables import create_table

_LOG = logging.getLogger(__name__)


class TableStream:
    """A table as queries write it, with these settings; `runs` are those of the sink that they belong to."""

    def __init__(self, settings: SinkSettings, runs: QueryRuns) -> None:
        self.settings = settings
        self.runs = runs

    def resolved(self, settings: SinkSettings) -> TableStream:
        """The table with other settings, and with the same runs."""
        return type(self)(settings, self.runs)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns; empty: those of the table."""
        return self.settings.changes.key

    def opened(
        self, frame: DataFrame, identity: CheckpointIdentity, schema: Any
    ) -> tuple[SinkRun, CheckpointIdentity]:
        """The state of the query that `frame` belongs to, and the checkpoint's identity in the table. The
        first micro-batch of a run opens the table, or creates it for `schema` if it may.
        """
        identity = replace(identity, pipeline=pipeline_name(self.settings, identity.job_id))
        run = self._run(frame, identity, schema)
        return run, run.named(identity)

    def _run(self, frame: DataFrame, identity: CheckpointIdentity, schema: Any) -> SinkRun:
        """The state of the query's present run; rebuilt from what is durable after each restart."""
        settings, runs = self.settings, self.runs
        query = query_run(frame, identity.job_id)
        run = runs.by_job.get(identity.job_id)
        if run is None or run.run_id != query.run_id:
            runs.replace(identity.job_id)
            require_lasting(query)
            session, branch, catalog = frame.sparkSession, settings.branch, settings.catalog
            name = noted_table(settings.table, catalog)
            note = CheckpointTable(session, query.checkpoint, name, branch, catalog)
            run = runs.by_job[identity.job_id] = self.opened_run(query, note, identity, schema, session)
        changes = settings.changes
        if changes.is_keyed and not changes.sequence_by and query.run_id not in runs.warned:
            self._warn_of_files(query, identity)
        return run

    def _warn_of_files(self, query: QueryRun, identity: CheckpointIdentity) -> None:
        """Warn once per run that nothing orders the changes of several files in one micro-batch."""
        count = query.logged.most_files(identity.end_offsets)
        if count > 1:
            self.runs.warned.add(query.run_id)
            _LOG.warning(
                "%s: %s reads %d files in one micro-batch and has no sequence_by: where several of them "
                "change one key, any of "
                "their changes may win, because Spark reads the files of a micro-batch in an order of its "
                "own, larger ones "
                "first. Name the columns that order changes in sequence_by, or set "
                '.option("maxFilesPerTrigger", 1) on the stream',
                self.settings.table,
                identity,
                count,
            )

    def opened_run(
        self,
        query: QueryRun,
        note: CheckpointTable,
        identity: CheckpointIdentity,
        schema: Any,
        session: SparkSession,
    ) -> SinkRun:
        """A run on the table. Raises where the checkpoint directory records another table."""
        settings = self.settings
        noted = note.read()
        refusal = self._refusal(note, noted, identity)
        new = settings.new_table if refusal is None else None
        retry = self.runs.opening[identity.job_id] = OutageRetry(lambda: settings.properties)
        try:
            table = retry.through(lambda: self.table(schema, new))
        except TableNotFoundError:
            if refusal is None:
                raise
            raise lineage_error(refusal, replace(note.command, pipeline=identity.pipeline)) from None
        finally:
            del self.runs.opening[identity.job_id]
        summary = {} if settings.pipeline else self._unnamed(table, noted, identity, session)
        if noted is not None:
            identity = replace(identity, pipeline=noted.pipelines.get(identity.pipeline, identity.pipeline))
        run = self.new_run(table, note, query.run_id, identity, session)
        run.summary = summary
        if settings.errors.on_error == REJECT:
            run.rejects = RejectsRun(
                settings.table,
                settings.catalog,
                settings.errors.max_rejects,
                job_id=identity.job_id,
                run_id=query.run_id,
                outage_retry=run.outage_retry,
            )
        written = settings.written
        run.written_before = None if written is None else written(note.command.table, settings.branch)
        run.remember(noted, identity, query.logged.of)
        return run

    def _refusal(
        self, note: CheckpointTable, noted: Noted | None, identity: CheckpointIdentity
    ) -> Finding | None:
        """Why no table may be created for the query: it had one before, or another one. None: it may."""
        if not identity.checkpoint_id:
            return None
        if noted is not None:
            return table_gone(self.settings.table, noted.table_uuid)
        directory = KnownDirectory(None, identity.checkpoint_id, None, note.others, self.settings.calls)
        return uncovered(self.settings.table, None, directory)

    def _unnamed(
        self, table: Table, noted: Noted | None, identity: CheckpointIdentity, session: SparkSession
    ) -> dict[str, str]:
        """What the commits of a stream without a name record about its source. Raises LineageError where
        another stream without a name has written the same before.
        """
        settings = self.settings
        files = files_read(session, identity.job_id)
        if noted is None and not identity.checkpoint_id and settings.changes.mode not in OVERWRITES:
            require_unread(table.metadata, settings.branch, identity, files)
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
        given, changes = self.settings, self.settings.changes
        given.job.check(table.properties)
        wanted = given.evolution
        evolution = EvolutionOptions.of(wanted.schema_evolution, wanted.rename_columns, table.properties)
        renamed(table, evolution)
        limit = given.pending_limit(table.properties)
        settings = RunSettings(
            job_id=identity.job_id,
            run_id=run_id,
            branch=given.branch,
            mode=changes.mode,
            max_continuous_empty_commits=given.max_continuous_empty_commits,
            queue=CommitQueue(limit, self.runs.deliver) if limit > 1 else None,
            command=note.command,
            evolution=evolution,
            calls=given.calls,
            job=given.job,
        )
        if not changes.is_keyed:
            return SinkRun(table, note, settings)
        require_row_kind(changes, None)
        options = UpsertOptions.of(
            table,
            key=changes.key,
            sequence_by=changes.sequence_by,
            row_kind=changes.row_kind,
            delete_mode=changes.delete_mode,
            parallelism=max(session.sparkContext.defaultParallelism, 1),
            write_parallelism=given.job.parallelism,
        )
        return UpsertRun(table, note, session, options, settings)

    def table(self, schema: Any, new: NewTable | None) -> Table:
        """The table; where there is none, the `new` one is created for rows of `schema`. Raises
        TableNotFoundError where none may be.
        """
        settings = self.settings
        try:
            table = open_table(settings.table, settings.catalog)
        except TableNotFoundError as error:
            if new is None:
                raise TableNotFoundError(f"{error}; with create=True the sink creates it") from error
        else:
            if settings.new_table is not None:
                tell_unused(table, settings.new_table)
            return table
        settings.job.check(new.properties)
        # Another job may create it in between; then this one writes to that table.
        with contextlib.suppress(TableAlreadyExistsError):
            create_table(
                settings.table,
                settings.created_schema(schema),
                catalog=settings.catalog,
                partition_by=new.partition_by,
                sort_by=new.sort_by,
                format_version=settings.created_format_version,
                properties=new.properties,
            )
            failpoint("table-created")
        return open_table(settings.table, settings.catalog)


class TableMember:
    """One of the tables of a query: `name` is what the query calls it, `topics` feed it, `table` says how
    they are read.
    """

    def __init__(self, name: str, stream: TableStream, topics: tuple[str, ...], table: DirectTable) -> None:
        self.name = name
        self.stream = stream
        self.topics = topics
        self.table = table
