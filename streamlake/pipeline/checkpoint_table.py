"""Which table a checkpoint directory writes, noted in the directory itself beside Spark's own logs.

A table that was dropped and created anew knows nothing of the checkpoints that went into the old one: going on from
there would leave their rows out without a word. The note is written when a query first meets a table. Invariant: it
only ever stops a job, it never makes one skip anything.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pyspark.sql import SparkSession

from streamlake.errors import LineageError

_DIRECTORY = "streamlake"


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

    def uuid(self) -> str | None:
        """The uuid of the table that the directory was written into; None when it is not known."""
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            return str(json.loads(self._text(stream, "UTF-8"))["table-uuid"])
        except (ValueError, KeyError, TypeError):
            return None  # cut short by a crash
        finally:
            stream.close()

    def note(self, table_uuid: str) -> None:
        """Write down the uuid of the table that the directory is written into from now on."""
        obj = {"table": self._table, "branch": self._branch, "table-uuid": table_uuid}
        stream = self._files.create(self._path, True)
        try:
            stream.write(bytearray(json.dumps(obj, indent=1).encode()))
        finally:
            stream.close()

    def refuse(self, noted: str, now: str) -> LineageError:
        """The error for a directory that was written into another table than the one that is there."""
        return LineageError(
            f"this checkpoint directory was written into another table at {self._table} (table uuid {noted}, now {now}):"
            " it was dropped since, and going on would leave out the rows of earlier checkpoints. Start the stream into"
            " a new table with a new checkpoint directory, or restore the old table; to go on all the same, create the"
            f" table and delete {self._path.toString()}"
        )
