"""The identity of a checkpoint in a foreachBatch call: read from the running query, never made up here.

The job id is the query id that Spark persists in the checkpoint's `metadata` file; the offsets are those that
Spark wrote to the checkpoint's offset log before it called us. Both are durable before anything refers to
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake.checkpoint.identity import CheckpointIdentity, canonical_offset
from streamlake.checkpoint.source_logs import Read, in_full, is_counter, most_files, reader
from streamlake.checkpoint.spark_logs import local_home, sync_entries
from streamlake.errors import InvalidOptionError, SourceError
from streamlake.pipeline.spark.checkpoint_file import HadoopFiles
from streamlake.storage.file_io import file_io_for, scheme_of

_TEMPORARY = re.compile(r"temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FILE_SOURCE = "FileStreamSource["
_QUERY_ID = "sql.streaming.queryId"


def checkpoint_identity(frame: DataFrame, checkpoint_id: int) -> CheckpointIdentity:
    """The identity of the micro-batch that `frame` holds, without its pipeline's name.

    Raises InvalidOptionError when the call does not come from a streaming query.
    """
    session = frame.sparkSession
    job_id = job_of(session)
    if not job_id:
        raise InvalidOptionError(
            "an IcebergSink was called outside of a streaming query, where there is no checkpoint to be "
            "exact about; use df.writeStream.foreachBatch(sink) or sink.start(df, checkpoint_location=...)"
        )
    log = stream_execution(session, job_id).offsetLog()
    logged = LoggedOffsets(session, log)
    home = local_home(str(log.metadataPath().getParent().toString()))
    if home is not None:
        sync_entries(home, checkpoint_id)
    return CheckpointIdentity(
        pipeline="",
        job_id=job_id,
        checkpoint_id=checkpoint_id,
        start_offsets=(logged.of(checkpoint_id - 1) or ()) if checkpoint_id else (),
        end_offsets=logged.of(checkpoint_id) or (),
    )


class LoggedOffsets:
    """A running query's offset log: Spark's own, `log`, in the JVM."""

    def __init__(self, session: Any, log: Any) -> None:
        self._session = session
        self._log = log

    def of(self, checkpoint_id: int) -> tuple[str, ...] | None:
        """Where a checkpoint ends, in the form of its identity; None where Spark's log lacks it."""
        entry = self._log.get(checkpoint_id)
        if not entry.isDefined():
            return None
        offsets = _offsets(entry)
        if not any(is_counter(text) for text in offsets):
            return offsets
        return in_full(self._read, self._location, offsets)

    def most_files(self, offsets: Sequence[str]) -> int:
        """The most files of one source that a micro-batch with these end offsets reads at once; 0 without a
        source of files.
        """
        return most_files(self._read, self._location, offsets)

    @property
    def _location(self) -> str:
        return str(self._log.metadataPath().getParent().toString())

    @cached_property
    def _read(self) -> Read:
        """Reads files of the checkpoint directory. Storage other than a local disk is read through Spark's
        own file systems, because Spark alone may have the credentials.
        """
        if scheme_of(self._location) in ("", "file"):
            return reader(file_io_for(self._location))
        files = HadoopFiles(self._session, self._log.metadataPath().getParent())
        return lambda path: files.read(files.path(path))


@dataclass(frozen=True)
class QueryRun:
    """One run of a query, from its start to its end. `checkpoint` is its directory as Hadoop's Path.

    The run id distinguishes a restart from a second call; it is never part of an identity.
    """

    run_id: str
    checkpoint: Any
    logged: LoggedOffsets


def query_run(frame: DataFrame, job_id: str) -> QueryRun:
    """The run that the micro-batch `frame` belongs to."""
    execution = stream_execution(frame.sparkSession, job_id)
    log = execution.offsetLog()
    logged = LoggedOffsets(frame.sparkSession, log)
    return QueryRun(execution.runId().toString(), log.metadataPath().getParent(), logged)


def require_lasting(query: QueryRun) -> None:
    """Raises InvalidOptionError for the temporary directory that Spark makes and removes with the query."""
    location = str(query.checkpoint.toString())
    if _TEMPORARY.fullmatch(location.rstrip("/").rpartition("/")[2]):
        raise InvalidOptionError(
            f"the query has no checkpoint directory of its own: {location} is a temporary one of Spark's, "
            f"which goes with the query, "
            "so that each start would read the source from its beginning and write all rows again. Give one "
            "that stays: "
            '.option("checkpointLocation", ...)'
        )


def files_read(session: SparkSession, job_id: str) -> tuple[str, ...]:
    """The directories of files that a running query reads, as Spark prints them; empty without any."""
    sources = stream_execution(session, job_id).sources()
    names = [str(sources.apply(at).toString()) for at in range(sources.size())]
    return tuple(name for name in names if name.startswith(_FILE_SOURCE))


def job_of(session: Any) -> str | None:
    """The id of the query whose micro-batch this thread runs; None outside of one."""
    found = session.sparkContext.getLocalProperty(_QUERY_ID)
    return None if not found else str(found)


def stream_execution(session: Any, job_id: str) -> Any:
    """The running query in the JVM. Raises SourceError when it has ended."""
    running = session._jsparkSession.sharedState().activeStreamingQueries()
    execution = running.get(session.sparkContext._jvm.java.util.UUID.fromString(job_id))
    if execution is None:
        raise SourceError(f"the streaming query {job_id} is no longer running; nothing was written for it")
    return execution


def _offsets(entry: Any) -> tuple[str, ...]:
    """The offsets of one log entry in a canonical form, one text per source ("" for a source without one)."""
    if not entry.isDefined():
        return ()
    offsets = entry.get().offsets()
    return tuple(
        canonical_offset(offsets.apply(at).get().json()) if offsets.apply(at).isDefined() else ""
        for at in range(offsets.size())
    )
