"""How far a checkpoint has come, read from Spark's own offset log before the query starts.

The direct path has to know it to tell where an available-now run ends, and whether anything is left to do. Invariant:
only files that Spark has completed are read (it writes them elsewhere and renames them); nothing is ever written.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from streamlake.errors import FeatureUnsupportedError, SourceError
from streamlake.source.offsets import SourceOffsets

_VERSION = "v1"
_LOG = "offsets"


def last_offsets_of(spark: SparkSession, checkpoint_location: str) -> SourceOffsets | None:
    """The offsets of the newest micro-batch in the log, committed or not (Spark runs that one again first).

    None for a checkpoint without any. Goes by way of Spark's own file systems, so it reads every location that Spark
    reaches. Raises SourceError when the log is not that of a single streamlake source.
    """
    jvm: Any = spark._jvm
    directory = jvm.org.apache.hadoop.fs.Path(str(checkpoint_location), _LOG)
    file_system = directory.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not file_system.exists(directory):
        return None
    names = [status.getPath().getName() for status in file_system.listStatus(directory)]
    newest = _newest(names)
    if newest is None:
        return None
    path = jvm.org.apache.hadoop.fs.Path(directory, newest)
    stream = file_system.open(path)
    try:
        return parse_offset_log(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"), str(path))
    finally:
        stream.close()


def parse_offset_log(text: str, path: str) -> SourceOffsets:
    """One entry of the log: the line "v1", a line of metadata, then a line per source.

    Raises SourceError, FeatureUnsupportedError for a log of another version.
    """
    lines = text.rstrip("\n").split("\n")
    if lines[0].strip() != _VERSION:
        raise FeatureUnsupportedError(
            f"{path} is an offset log of version {lines[0][:20]!r}; {_VERSION} is the one that is known here: go on with the "
            "version of Spark that has written the rest of this checkpoint directory, or start with a new one"
        )
    if len(lines) != 3:
        raise SourceError(
            f"{path} is not the offset log of a query with one source ({max(0, len(lines) - 2)} sources); use a checkpoint "
            "location of its own for each query"
        )
    try:
        value = json.loads(lines[2])
    except ValueError as error:
        raise SourceError(f"{path} does not end with an offset in JSON: {lines[2][:200]!r}") from error
    return SourceOffsets.from_json(value)


def _newest(names: Any) -> str | None:
    return max((name for name in names if name.isdigit()), key=int, default=None)
