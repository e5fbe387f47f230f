"""Which table a checkpoint directory writes, noted in the directory itself beside Spark's own logs.

A table that was dropped and created anew knows nothing of the checkpoints that went into the old one: going on from
there would leave their rows out without a word. And a table that lost both its marks, the property and the snapshots,
cannot tell a replay. The note is written when a query first meets a table, and once more when it first has something
in it. Invariant: it only ever stops a job, it never makes one skip anything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from streamlake.errors import LineageError

_DIRECTORY = "streamlake"


@dataclass(frozen=True)
class Noted:
    """What a note says: the table's uuid, and whether a checkpoint of the directory was committed to it."""

    table_uuid: str
    committed: bool


class CheckpointTable:
    """The note about one table and branch. `checkpoint` is the checkpoint directory as Hadoop's Path."""

    def __init__(self, session: SparkSession, checkpoint: Any, table: str, branch: str) -> None:
        jvm: Any = session._jvm
        name = hashlib.sha256(f"{table}\n{branch}".encode()).hexdigest()[:16]
        self._table = table
        self._branch = branch
        self._text = jvm.org.apache.commons.io.IOUtils.toString
        self._path = jvm.org.apache.hadoop.fs.Path(checkpoint, f"{_DIRECTORY}/{name}.json")
        self._files = checkpoint.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def read(self) -> Noted | None:
        """The note; None when there is none."""
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            obj = json.loads(self._text(stream, "UTF-8"))
            return Noted(str(obj["table-uuid"]), obj["committed"] is True)
        except (ValueError, KeyError, TypeError):
            return None  # cut short by a crash
        finally:
            stream.close()

    def write(self, noted: Noted) -> None:
        """Write the note, in place of an older one."""
        obj = {
            "table": self._table,
            "branch": self._branch,
            "table-uuid": noted.table_uuid,
            "committed": noted.committed,
        }
        stream = self._files.create(self._path, True)
        try:
            stream.write(bytearray(json.dumps(obj, indent=1).encode()))
        finally:
            stream.close()

    def replaced(self, noted: Noted, now: str) -> LineageError:
        """The error for a directory that was written into another table than the one that is there."""
        return LineageError(
            f"this checkpoint directory was written into another table at {self._table} (table uuid {noted.table_uuid}, now {now}):"
            " it was dropped since, and going on would leave out the rows of earlier checkpoints. Start the stream into"
            " a new table with a new checkpoint directory, or restore the old table; to go on all the same, create the"
            f" table and delete {self._path.toString()}"
        )

    def forgotten(self) -> LineageError:
        """The error for a table that holds neither the property nor a snapshot of a directory that has written it."""
        return LineageError(
            f"this checkpoint directory has written {self._table}, but the table no longer knows it: the snapshots have"
            " expired or were rolled back, and the table property of the pipeline is gone, so a replay cannot be told"
            " from new rows. Set the property again (an earlier metadata file of the table has it), or start with the"
            " checkpoint directory that belongs to the table's state, or with a new one"
        )
