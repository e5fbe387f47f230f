"""The commit before a DataFrame's stream starts, of staged checkpoints that Spark counts as done.

Place in the flow: `IcebergSink.start`, after directory and table were compared. A predecessor may have
reported a checkpoint as done that it had only staged. Spark calls a sink only when there are records, and an
idle source may bring none for days. Invariant: checkpoints that Spark runs again by itself are left to it;
nothing is written except by a commit.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.micro_batch import commit_staged
from streamlake.pipeline.sinks.bound_directory import pipeline_name
from streamlake.pipeline.sinks.table_stream import TableStream
from streamlake.storage.locations import noted_table


def commit_before_start(
    session: SparkSession,
    location: str,
    directory: SparkDirectory | None,
    stream: TableStream,
) -> None:
    """Commit what queries on the checkpoint directory at `location` have staged for the table, where Spark
    counts the last checkpoint as done. `directory` None: there is none yet.

    Raises StorageError and CommitStateUnknownError where an outage outlasts the table's `commit.retry.*`
    (everything stays staged), and what the first micro-batch would raise: LineageError, FencedError.
    """
    if directory is None:
        return
    done = directory.last_completed
    if done == NO_CHECKPOINT or directory.last_planned > done:
        return
    settings = stream.settings
    name = noted_table(settings.table, settings.catalog)
    noted = directory.note(name, settings.branch)
    if noted is None or noted.staged_id is None:
        return
    own = pipeline_name(settings, directory.job_id)
    identity = CheckpointIdentity(
        pipeline=noted.pipelines.get(own, own),
        job_id=directory.job_id,
        checkpoint_id=done + 1,
        start_offsets=directory.end_offsets(done) or (),
    )
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    note = CheckpointTable(session, path, name, settings.branch, settings.catalog)
    run = stream.new_run(settings.opened_table(), note, "", identity, session)
    run.remember(noted, identity, directory.end_offsets)
    commit_staged(run, identity)
