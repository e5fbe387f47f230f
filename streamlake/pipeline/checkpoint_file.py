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
        self._files = checkpoint.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def read(self) -> str | None:
        """The text; None when there is no such file."""
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, content: bytes) -> None:
        """Write the file, in place of an older one."""
        stream = self._files.create(self._path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
