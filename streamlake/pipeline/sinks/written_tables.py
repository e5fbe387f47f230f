"""The log of the last checkpoint written to each table of a query of many, in its checkpoint directory.

Place in the flow: on the driver; see `checkpoint.table_log` for the format. Read before the first table of a
run is opened, which is compared with it; written at the end of each micro-batch that has written a table.
Each entry is one small file, however many tables were written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity, offsets_digest
from streamlake.checkpoint.table_log import (
    DIRECTORY,
    logged_table,
    newest_written,
    outlived,
    table_log_path,
    table_log_to_bytes,
)
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.pipeline.direct.offset_log import kept_entries
from streamlake.pipeline.spark.checkpoint_file import HadoopFiles
from streamlake.pipeline.spark.query_identity import job_of, query_run


class LogFiles(Protocol):
    """The log entries' files, by their checkpoints."""

    def checkpoints(self) -> list[int]:
        """The checkpoints that have an entry, in ascending order."""
        ...

    def text(self, checkpoint_id: int) -> str | None:
        """The text of a checkpoint's entry; None where there is none."""
        ...

    def replace(self, checkpoint_id: int, content: bytes) -> None:
        """Write the entry of a checkpoint, in place of one that is there."""
        ...

    def remove(self, checkpoint_id: int) -> None:
        """Remove the entry of a checkpoint."""
        ...


class WrittenRun(Protocol):
    """A table's state while the query runs; the part that is needed here."""

    @property
    def branch(self) -> str:
        """The branch that is written."""
        ...

    @property
    def last_written(self) -> int:
        """The last checkpoint that is in the table, or staged for it and about to be done."""
        ...


class WrittenTables:
    """The log for one run of a query whose first micro-batch is `checkpoint_id`; `kept` is the number of
    checkpoints whose entries stay, as in Spark's own logs.
    """

    def __init__(
        self,
        files: LogFiles,
        job_id: str,
        checkpoint_id: int,
        digest_of: Callable[[int], str | None],
        kept: int,
    ) -> None:
        self._files = files
        self._kept = kept
        self._entries = files.checkpoints()
        known = (each for each in self._entries if each < checkpoint_id)
        self._written = newest_written(known, files.text, job_id, digest_of)

    @staticmethod
    def of(frame: DataFrame, checkpoint_id: int) -> WrittenTables:
        """The log that the checkpoint directory of the query holds."""
        session = frame.sparkSession
        job_id = job_of(session) or ""
        query = query_run(frame, job_id)

        def digest_of(checkpoint_id: int) -> str | None:
            ends = query.logged.of(checkpoint_id)
            return None if ends is None else offsets_digest(ends)

        files = _HadoopLog(HadoopFiles(session, query.checkpoint))
        return WrittenTables(files, job_id, checkpoint_id, digest_of, kept_entries(session))

    def last(self, table: str, branch: str) -> int:
        """The last checkpoint that was written to a table by the log; NO_CHECKPOINT without an entry."""
        return self._written.get(logged_table(table, branch), NO_CHECKPOINT)

    def keep(self, identity: CheckpointIdentity, runs: Mapping[str, WrittenRun]) -> None:
        """Log what was written last to these tables, now that a checkpoint is about to be done."""
        checkpoint_id = identity.checkpoint_id
        last = {
            logged_table(table, run.branch): min(run.last_written, checkpoint_id)
            for table, run in runs.items()
        }
        found = {name: number for name, number in last.items() if number != NO_CHECKPOINT}
        written = {**self._written, **found}
        if written == self._written:
            return
        self._files.replace(
            checkpoint_id, table_log_to_bytes(identity.job_id, identity.offsets_digest, written)
        )
        self._written = written
        self._entries = [*(each for each in self._entries if each < checkpoint_id), checkpoint_id]
        for old in outlived(self._entries, checkpoint_id - self._kept):
            self._files.remove(old)
            self._entries.remove(old)


class _HadoopLog:
    """The log entries' files through Spark's own file systems."""

    def __init__(self, files: HadoopFiles) -> None:
        self._files = files

    def checkpoints(self) -> list[int]:
        return sorted(int(name) for name in self._files.names(DIRECTORY) if name.isdigit())

    def text(self, checkpoint_id: int) -> str | None:
        return self._files.read(self._files.path(table_log_path(checkpoint_id)))

    def replace(self, checkpoint_id: int, content: bytes) -> None:
        self._files.replace(self._files.path(table_log_path(checkpoint_id)), content)

    def remove(self, checkpoint_id: int) -> None:
        self._files.system.delete(self._files.path(table_log_path(checkpoint_id)), False)
