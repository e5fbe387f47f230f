"""What a predecessor has staged and told Spark to be done is committed before a stream of a DataFrame starts.

Place in the flow: `IcebergSink.start`, after directory and table were compared. Spark calls a sink with records only, and an idle
source may bring none for days. Invariant: what Spark runs again by itself is left to it; nothing is written but by a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pyspark.sql import SparkSession

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.lineage import CatalogOption
from streamlake.pipeline.checkpoint_table import CheckpointTable
from streamlake.pipeline.micro_batch import commit_staged
from streamlake.pipeline.sink_run import SinkRun
from streamlake.storage.locations import table_location
from streamlake.table.table import Table


class StartingSink(Protocol):
    """What is asked of a sink."""

    @property
    def table(self) -> str: ...

    @property
    def catalog(self) -> CatalogOption: ...

    @property
    def branch(self) -> str: ...

    @property
    def pipeline(self) -> str | None: ...

    def new_run(
        self,
        table: Table,
        note: CheckpointTable,
        run_id: str,
        identity: CheckpointIdentity,
        session: SparkSession,
    ) -> SinkRun:
        """The state of a run that starts on an open table."""
        ...


def commit_before_start(
    session: SparkSession,
    location: str,
    directory: SparkDirectory | None,
    sink: StartingSink,
    opened: Callable[[], Table],
) -> None:
    """Commit what is staged for the table by queries on the checkpoint directory at `location`, where the last checkpoint is done for
    Spark. `directory` None: there is none yet; `opened` opens the table.

    Raises StorageError and CommitStateUnknownError where an outage outlasts the table's `commit.retry.*` (all stays staged), and
    what the first micro-batch would: LineageError, FencedError.
    """
    if directory is None:
        return
    done = directory.last_completed
    if done == NO_CHECKPOINT or directory.last_planned > done:
        return
    name = table_location(sink.table) if sink.catalog is None else sink.table
    noted = directory.note(name, sink.branch)
    if noted is None or noted.staged_id is None:
        return
    own = sink.pipeline or f"{sink.table}:{directory.job_id}"
    identity = CheckpointIdentity(
        pipeline=noted.pipelines.get(own, own),
        job_id=directory.job_id,
        checkpoint_id=done + 1,
        start_offsets=directory.end_offsets(done) or (),
    )
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    note = CheckpointTable(session, path, name, sink.branch, sink.catalog)
    run = sink.new_run(opened(), note, "", identity, session)
    run.remember(noted, identity, directory.end_offsets)
    commit_staged(run, identity)
