"""How far a checkpoint has come, read from Spark's own offset log before the query starts.

Spark does not tell a Python source after a restart where the query stood; the log does. Invariant: only files that
Spark has completed are read (it writes them elsewhere and renames them); nothing is ever written.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from streamlake.errors import SourceError
from streamlake.source.offsets import SourceOffsets

_VERSION = "v1"


def last_offsets(spark: SparkSession, checkpoint_location: str) -> SourceOffsets | None:
    """The offsets of the newest micro-batch in the log, committed or not (Spark runs that one again first).

    None for a checkpoint without any. Raises SourceError when the log is not that of a single streamlake source.
    """
    jvm: Any = spark._jvm
    directory = jvm.org.apache.hadoop.fs.Path(str(checkpoint_location), "offsets")
    file_system = directory.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not file_system.exists(directory):
        return None
    names = [status.getPath().getName() for status in file_system.listStatus(directory)]
    batches = [int(name) for name in names if name.isdigit()]
    if not batches:
        return None
    newest = jvm.org.apache.hadoop.fs.Path(directory, str(max(batches)))
    stream = file_system.open(newest)
    try:
        text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return _parsed(text, str(newest))


def _parsed(text: str, path: str) -> SourceOffsets:
    """One entry of the log: the line "v1", a line of metadata, then a line per source."""
    lines = text.split("\n")
    if lines[0].strip() != _VERSION or len(lines) != 3:
        raise SourceError(
            f"{path} is not the offset log of a query with one source (version {lines[0][:20]!r}, "
            f"{max(0, len(lines) - 2)} sources); use a checkpoint location of its own for each query"
        )
    try:
        value = json.loads(lines[2])
    except ValueError as error:
        raise SourceError(f"{path} does not end with an offset in JSON: {lines[2][:200]!r}") from error
    return SourceOffsets.from_json(value)
