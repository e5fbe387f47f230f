"""Small files of ours in a checkpoint directory, written and read through Spark's own file systems.

So they reach storage for which Spark alone has the credentials. Invariant: a file that is replaced is the
older or the newer one, whole, whenever the driver ends. Local files and those of HDFS are renamed over the
older one; an object store shows a file only once it is closed. Local files survive a power loss as soon as
they are written.
"""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from streamlake.ids import new_uuid
from streamlake.storage.file_io import file_io_for, scheme_of

_LOCAL = ("file",)
_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "oss", "cosn", "obs", "swift")
"""Renames are copies there."""
_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""What keeps a new file of an object store from replacing one (S3A since Hadoop 3.4.2)."""


class HadoopFiles:
    """Files of the directory `home`, a Hadoop Path. All paths are Hadoop's; `path` makes them from texts."""

    def __init__(self, session: SparkSession, home: Any) -> None:
        jvm: Any = session._jvm
        self._gateway: Any = session.sparkContext._gateway
        self._home = home
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._text = jvm.org.apache.commons.io.IOUtils.toString
        self._conf = session._jsparkSession.sessionState().newHadoopConf()
        self._jvm = jvm
        self.system = home.getFileSystem(self._conf)
        """Hadoop's FileSystem."""
        self._is_local = str(self.system.getUri().getScheme()) in _LOCAL

    def path(self, name: str) -> Any:
        """The path of `name`, below the directory unless it is absolute."""
        return self._new_path(self._home, name)

    def local(self, path: Any) -> str | None:
        """The operating system's path of Hadoop's `path`; None where it is on another storage."""
        return str(path.toUri().getPath()) if self._is_local else None

    def read(self, path: Any) -> str | None:
        """The text of a file; None when there is none."""
        if not self.system.exists(path):
            return None
        stream = self.system.open(path)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, name: str) -> list[str]:
        """The names of the files in a directory; empty where there is no such directory."""
        path = self.path(name)
        if not self.system.exists(path):
            return []
        return [status.getPath().getName() for status in self.system.listStatus(path) if status.isFile()]

    def write(self, path: Any, content: bytes) -> None:
        """Write a file that nobody reads yet: it is left as it is when the write is cut short, and a power
        loss may lose it.
        """
        stream = self.system.create(path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def replace(self, path: Any, content: bytes) -> None:
        """Write a file as a whole, in place of an older one."""
        local = self.local(path)
        if local is not None:
            file_io_for(local).write_bytes(local, content)
        elif scheme_of(str(path.toString())) in _OBJECT_STORES:
            self.write(path, content)
        else:
            self._renamed_over(path, content)

    def create_new(self, path: Any, content: bytes) -> bool | None:
        """Create a file of an object store by a conditional put; False where there is one, None where the
        store's connector has no such thing, and nothing was done.
        """
        if scheme_of(str(path.toString())) not in _OBJECT_STORES:
            return None
        builder = self.system.createFile(path).overwrite(True).recursive()
        stream = None
        try:
            stream = builder.must(_CONDITIONAL, True).build()
            stream.write(bytearray(content))
            stream.close()
        except Py4JJavaError as error:
            name = str(error.java_exception.getClass().getName()).rpartition(".")[2]
            if stream is None and name in ("IllegalArgumentException", "UnsupportedOperationException"):
                return None
            if name in ("FileAlreadyExistsException", "RemoteFileChangedException"):
                return False
            raise
        return True

    def _renamed_over(self, path: Any, content: bytes) -> None:
        draft = self._new_path(path.getParent(), f".{path.getName()}.{new_uuid()}.tmp")
        fs = self._jvm.org.apache.hadoop.fs
        over = self._gateway.new_array(self._jvm.org.apache.hadoop.fs.Options.Rename, 1)
        over[0] = fs.Options.Rename.OVERWRITE
        try:
            self.write(draft, content)
            fs.FileContext.getFileContext(path.toUri(), self._conf).rename(draft, path, over)
        finally:
            if self.system.exists(draft):
                self.system.delete(draft, False)


class CheckpointFile:
    """A JSON file. `checkpoint` is the directory as Hadoop's Path, `path` is below it."""

    def __init__(self, session: SparkSession, checkpoint: Any, path: str) -> None:
        self._files = HadoopFiles(session, checkpoint)
        self._path = self._files.path(path)
        self._next = self._files.path(f"{path}.next")
        self._is_written = False

    def read(self) -> str | None:
        """The text; None when there is no such file."""
        text = self._files.read(self._path)
        if text is not None:
            return text
        # Older versions replaced a file by way of this one, which is whole once they had removed the file
        # itself.
        left = self._files.read(self._next)
        return left if left is not None and _is_whole(left) else None

    def write(self, content: bytes) -> None:
        """Write the file as a whole, in place of an older one."""
        self._files.replace(self._path, content)
        if not self._is_written:
            # What an older version left is no longer needed, and removing the file must remove its content.
            self._files.system.delete(self._next, False)
            self._is_written = True


def _is_whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
