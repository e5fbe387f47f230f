"""Small files of ours in a checkpoint directory, through Spark's own file systems: they reach places that nobody told us
the keys of."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """Files of the directory `home`, Hadoop's Path. Paths are Hadoop's; `path` makes them of texts."""

    def __init__(self, session: SparkSession, home: Any) -> None:
        jvm: Any = session._jvm
        self._home = home
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._text = jvm.org.apache.commons.io.IOUtils.toString
        self.system = home.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        """Hadoop's FileSystem."""

    def path(self, name: str) -> Any:
        """The path of `name`, below the directory unless it is a whole one."""
        return self._new_path(self._home, name)

    def read(self, path: Any) -> str | None:
        """The text of a file; None when there is none."""
        if not self.system.exists(path):
            return None
        stream = self.system.open(path)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: Any, content: bytes) -> None:
        """Write a file, in place of an older one."""
        stream = self.system.create(path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()


class CheckpointFile:
    """`checkpoint` is the directory as Hadoop's Path, `path` is below it."""

    def __init__(self, session: SparkSession, checkpoint: Any, path: str) -> None:
        self._files = HadoopFiles(session, checkpoint)
        self._path = self._files.path(path)
        self._next = self._files.path(f"{path}.next")

    def read(self) -> str | None:
        """The text; None when there is no such file."""
        text = self._files.read(self._path)
        # A `replace` may have come that far.
        return self._files.read(self._next) if text is None else text

    def write(self, content: bytes) -> None:
        """Write the file, in place of an older one."""
        self._files.write(self._path, content)

    def replace(self, content: bytes) -> None:
        """The same, so that there is the older or the newer file whenever this ends."""
        self._files.write(self._next, content)
        self._files.system.delete(self._path, False)
        self._files.system.rename(self._next, self._path)
