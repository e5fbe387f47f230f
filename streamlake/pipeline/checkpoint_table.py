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
from streamlake.pipeline.checkpoint_file import CheckpointFile


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
        self._table = table
        self._branch = branch
        self._file = CheckpointFile(session, checkpoint, note_path(table, branch))
        location = str(checkpoint.toString()).removeprefix("file:")
        self.command = RecoverCommand(table, "", branch, catalog, location)

    def read(self) -> Noted | None:
        """The note; None when there is none."""
        text = self._file.read()
        return None if text is None else note_from_text(text)

    def write(self, noted: Noted) -> None:
        """Write the note, in place of an older one."""
        self._file.write(note_to_bytes(noted, self._table, self._branch))
