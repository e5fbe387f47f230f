"""Which table a checkpoint directory writes, noted in the directory itself beside Spark's own logs.

A table that was dropped and created anew knows nothing of the checkpoints that went into the old one: going on from
there would leave their rows out without a word. A table that lost both its marks, the property and the snapshots,
cannot tell a replay; one that was replaced by an older state of itself lacks checkpoints that Spark has finished. The
note is written when a query first meets a table, when it first has something in it, and now and then after that.
Invariant: it only ever stops a job, it never makes one skip anything.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streamlake.checkpoint.table_note import Noted, note_from_text, note_path, note_to_bytes
from streamlake.commit.lineage import CatalogOption, RecoverCommand


class CheckpointTable:
    """The note about one table and branch. `checkpoint` is the checkpoint directory as Hadoop's Path, `table` and `catalog`
    are as the sink was given them."""

    def __init__(
        self,
        session: SparkSession,
        checkpoint: Any,
        table: str,
        branch: str,
        catalog: CatalogOption = None,
    ) -> None:
        jvm: Any = session._jvm
        self._table = table
        self._branch = branch
        self._text = jvm.org.apache.commons.io.IOUtils.toString
        self._path = jvm.org.apache.hadoop.fs.Path(checkpoint, note_path(table, branch))
        self._files = checkpoint.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        location = str(checkpoint.toString()).removeprefix("file:")
        self.command = RecoverCommand(table, "", branch, catalog, location)

    def read(self) -> Noted | None:
        """The note; None when there is none."""
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            return note_from_text(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, noted: Noted) -> None:
        """Write the note, in place of an older one."""
        stream = self._files.create(self._path, True)
        try:
            stream.write(bytearray(note_to_bytes(noted, self._table, self._branch)))
        finally:
            stream.close()
