"""The log of a direct query's offsets, in its checkpoint directory; see `checkpoint.offset_entries`.

Place in the flow: written on the driver, once per micro-batch, between Spark's entry in its own log and the
first read. Invariant: an existing entry is never overwritten: of two drivers that plan the same checkpoint,
the second one is fenced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from streamlake.checkpoint.offset_entries import (
    DIRECTORY,
    entry_from_text,
    entry_path,
    entry_to_bytes,
    tick_of,
)
from streamlake.errors import FeatureUnsupportedError, FencedError, SourceError
from streamlake.ids import new_uuid
from streamlake.pipeline.spark.checkpoint_file import HadoopFiles
from streamlake.storage.local import LocalFileIO

_SPARK_LOG, _SPARK_DONE = "offsets", "commits"
_SPARK_VERSION = "v1"
_KEPT_CONF = "spark.sql.streaming.minBatchesToRetain"
_KEPT_LONGER = 20
"""Spark removes its entries after a micro-batch, in the background; ours outlive them."""


class LoggedOffset(Protocol):
    """An offset of a source of one kind. Equal offsets have equal texts."""

    def to_text(self) -> str:
        """The offset as JSON text."""
        ...


Offset = TypeVar("Offset", bound=LoggedOffset)


@dataclass(frozen=True)
class OffsetForm(Generic[Offset]):
    """How the offsets of one kind of source are read back. `source` names it in messages; `anew` says how a
    new checkpoint directory goes on where a lost one was.
    """

    source: str
    from_json: Callable[[Any], Offset]
    anew: str

    def of_texts(self, texts: Sequence[str]) -> Offset | None:
        """The offset in the texts of a checkpoint's identity; None for those of another kind of query."""
        if len(texts) != 1:
            return None
        try:
            return self.from_json(json.loads(texts[0]))
        except (ValueError, SourceError):
            return None


class OffsetLog(Generic[Offset]):
    """The log below the checkpoint directory `location`, with offsets of one form."""

    def __init__(self, session: SparkSession, location: str, form: OffsetForm[Offset]) -> None:
        jvm: Any = session._jvm
        self._form = form
        self._location = jvm.org.apache.hadoop.fs.Path(location)
        self._files = HadoopFiles(session, self._location)
        self._system = self._files.system
        self._kept = kept_entries(session)

    def last(self) -> Offset | None:
        """Where the newest checkpoint that has an entry ends; None where there is none.

        Raises SourceError when the directory belongs to a query of another kind, or lacks an entry that it
        must have.
        """
        newest = self._newest(_SPARK_LOG)
        if newest is None:
            return None
        path = f"{_SPARK_LOG}/{newest}"
        require_tick(self._read(path) or "", f"{self._location.toString()}/{path}")
        # The newest tick has no entry while its query waits for something new.
        if self._system.exists(self._path(f"{_SPARK_DONE}/{newest}")):
            return self.required(newest)
        found = self.read(newest)
        if found is not None:
            return found
        return self.required(newest - 1) if newest else None

    def required(self, checkpoint_id: int) -> Offset:
        """Where a checkpoint that Spark has finished ends. Raises SourceError when its entry is missing."""
        found = self.read(checkpoint_id)
        if found is None:
            raise SourceError(
                f"{self._location.toString()}/{entry_path(checkpoint_id)} is missing, so it is not known how "
                f"far this query has read {self._form.source}; restore the whole checkpoint directory from a "
                f"copy, or start with a new one and {self._form.anew}"
            )
        return found

    def read(self, checkpoint_id: int) -> Offset | None:
        """Where a checkpoint ends; None when it has no entry."""
        path = entry_path(checkpoint_id)
        text = self._read(path)
        if text is None:
            return None
        return self._form.from_json(json.loads(entry_from_text(text, f"{self._location.toString()}/{path}")))

    def add(self, checkpoint_id: int, end: Offset) -> None:
        """Write an entry, and remove one that Spark has removed. Raises FencedError where there is one."""
        path = self._path(entry_path(checkpoint_id))
        content = entry_to_bytes(end.to_text())
        is_ours = self._files.create_new(path, content)
        if is_ours is None:
            is_ours = self._added(checkpoint_id, path, content)
        if not is_ours:
            raise FencedError(
                f"another driver runs the same checkpoint directory: {path.toString()} is there, which this "
                "driver was about to write. This one stops, and has read nothing of the checkpoint; make "
                "sure that only one is started"
            )
        if checkpoint_id >= self._kept:
            self._system.delete(self._path(entry_path(checkpoint_id - self._kept)), False)

    def _added(self, checkpoint_id: int, path: Any, content: bytes) -> bool:
        """Write an entry as a draft, and rename it; False where there is one."""
        draft = self._path(f"{DIRECTORY}/.{checkpoint_id}.{new_uuid()}.tmp")
        self._files.replace(draft, content)
        try:
            return self._named(draft, path)
        finally:
            if self._system.exists(draft):
                self._system.delete(draft, False)

    def _named(self, draft: Any, path: Any) -> bool:
        """Rename the draft; False where there is a file of that name. On local disks Hadoop's rename would
        overwrite it; a link does not.
        """
        source, target = self._files.local(draft), self._files.local(path)
        if source is None or target is None:
            return not self._system.exists(path) and bool(self._system.rename(draft, path))
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        except OSError:
            # The file system has no hard links.
            if self._system.exists(path) or not self._system.rename(draft, path):
                return False
        LocalFileIO().sync(target)
        return True

    def _newest(self, directory: str) -> int | None:
        where = self._path(directory)
        if not self._system.exists(where):
            return None
        names = [status.getPath().getName() for status in self._system.listStatus(where)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _read(self, path: str) -> str | None:
        return self._files.read(self._path(path))

    def _path(self, path: str) -> Any:
        return self._files.path(path)


def kept_entries(session: SparkSession) -> int:
    """The number of entries that a log of ours keeps."""
    return int(str(session.conf.get(_KEPT_CONF, "100"))) + _KEPT_LONGER


def require_tick(text: str, path: str) -> None:
    """Raises SourceError when `text`, an entry of Spark's log, does not belong to a query on the direct path;
    FeatureUnsupportedError for a log of another version.
    """
    lines = text.rstrip("\n").split("\n")
    if lines[0].strip() != _SPARK_VERSION:
        raise FeatureUnsupportedError(
            f"{path} is an offset log of version {lines[0][:20]!r}; {_SPARK_VERSION} is the version that can "
            "be read here: use the version of Spark that wrote the rest of this checkpoint directory, or "
            "start with a new one"
        )
    if len(lines) != 3 or tick_of(lines[2]) is None:
        raise SourceError(
            f"{path} is not the offset log of a query that reads Kafka or a table directly; use a checkpoint "
            "location "
            "of its own for each query, and start one that was started with another source (the DataFrame of "
            "streamlake-kafka too) with that source. A directory of a version before 0.1 cannot be taken on: "
            "give a new one, starting-offsets as `streamlake status` shows them, and let `streamlake recover "
            "--adopt` bind it to the table"
        )
