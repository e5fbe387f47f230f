"""A small file of ours in a checkpoint directory, through Spark's own file systems: they reach places that nobody told us
the keys of."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class CheckpointFile:
    """`checkpoint` is the directory as Hadoop's Path, `path` is below it."""

    def __init__(self, session: SparkSession, checkpoint: Any, path: str) -> None:
        jvm: Any = session._jvm
        self._text = jvm.org.apache.commons.io.IOUtils.toString
        self._path = jvm.org.apache.hadoop.fs.Path(checkpoint, path)
        self._next = jvm.org.apache.hadoop.fs.Path(checkpoint, f"{path}.next")
        self._files = checkpoint.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def read(self) -> str | None:
        """The text; None when there is no such file."""
        path = self._path
        if not self._files.exists(path):
            # A `replace` may have come that far.
            path = self._next
            if not self._files.exists(path):
                return None
        stream = self._files.open(path)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, content: bytes) -> None:
        """Write the file, in place of an older one."""
        self._write(self._path, content)

    def replace(self, content: bytes) -> None:
        """The same, so that there is the older or the newer file whenever this ends."""
        self._write(self._next, content)
        self._files.delete(self._path, False)
        self._files.rename(self._next, self._path)

    def _write(self, path: Any, content: bytes) -> None:
        stream = self._files.create(path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
