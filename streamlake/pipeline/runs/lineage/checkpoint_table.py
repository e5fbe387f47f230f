"""The note in a checkpoint directory, beside Spark's own logs, about the table that the directory writes.

A table that was dropped and created anew knows nothing of the checkpoints that went into the old one: going
on from there would leave their rows out silently. A table that lost both its commit markers, the property and
the snapshots, cannot recognise a replay; one that was replaced by an older state of itself lacks checkpoints
that Spark has finished. The note is written when a query first opens a table, when it first has something in
it, and now and then after that. Invariant: a note only ever stops a job, it never makes one skip anything.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streamlake.checkpoint.table_note import DIRECTORY as NOTES
from streamlake.checkpoint.table_note import (
    Noted,
    is_note,
    note_from_text,
    note_path,
    note_subject,
    note_to_bytes,
    shown_tables,
)
from streamlake.commit.committer import ANOTHER_DRIVER
from streamlake.commit.lineage import CatalogOption, RecoverCommand
from streamlake.errors import FencedError
from streamlake.pipeline.spark.checkpoint_file import CheckpointFile, HadoopFiles


class CheckpointTable:
    """The note about one table and branch. `checkpoint` is the checkpoint directory as Hadoop's Path; `table`
    and `catalog` are those of the sink.
    """

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
        self._directory = HadoopFiles(session, checkpoint)
        location = str(checkpoint.toString()).removeprefix("file:")
        self.command = RecoverCommand(table, "", branch, catalog, location)

    def read(self) -> Noted | None:
        """The note; None when there is none."""
        text = self._file.read()
        return None if text is None else note_from_text(text)

    def others(self) -> list[str]:
        """The other tables that the directory has notes about, as messages name them."""
        names = (name for name in self._directory.names(NOTES) if is_note(name))
        texts = (self._directory.read(self._directory.path(f"{NOTES}/{name}")) for name in names)
        found = (note_subject(text) for text in texts if text is not None)
        own = (self._table, self._branch)
        return shown_tables(each for each in found if each is not None and each != own)

    def write(self, noted: Noted) -> None:
        """Write the note, in place of an older one."""
        self._file.write(note_to_bytes(noted, self._table, self._branch))


class OwnNote:
    """The note as one run of a query writes it.

    A driver that stood still while its successor went on must not take back what the successor has noted: the
    next start would be refused, as if the directory had gone on without the table. Between the comparison and
    the write lie milliseconds in which this can still happen; no row is lost by it.
    """

    def __init__(self, note: CheckpointTable, location: str) -> None:
        self._note = note
        self._location = location
        self._own: tuple[Noted | None, ...] = ()

    def others(self) -> list[str]:
        """See CheckpointTable."""
        return self._note.others()

    def goes_on_from(self, noted: Noted | None) -> None:
        """Set the note that the run has found there."""
        self._own = (noted,)

    def write(self, noted: Noted) -> None:
        """Write the note. Raises FencedError where another driver wrote it since this run last used it."""
        there = self._note.read()
        if there is not None and there not in self._own:
            raise FencedError(
                f"the checkpoint directory's note about {self._location} was written by another driver after "
                f"this one had started: {ANOTHER_DRIVER}"
            )
        self._own = (there, noted)
        self._note.write(noted)
