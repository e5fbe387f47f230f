"""A short cut for Spark's Python workers: archives that never change are not read again before every task.

Spark puts its core jar and the archives of pyspark and py4j on the module search path of its workers, and before every
task it has Python forget what it knows of that path. Interpreters before 3.13 then read the directory of an archive
again, once for each of its packages that was imported from: two or three tenths of a second per task. Called from within
tasks; it takes effect for the worker's next one.
"""

from __future__ import annotations

import re
import sys

_CORE_JAR = re.compile(r"[/\\]spark-core_[\d.]+-[^/\\]*\.jar(?=$|[/\\])")
_ARCHIVES = re.compile(rf"{_CORE_JAR.pattern}|[/\\](pyspark|py4j-[\d.]+-src)\.zip(?=$|[/\\])")


def keep_archive_directories() -> None:
    """Take Spark's archives out of the importers that Python refreshes; a later import from one makes a new importer,
    of the directory as it was read first. The core jar, which holds no Python module, is searched no more."""
    for path in [path for path in sys.path if _CORE_JAR.search(path)]:
        sys.path.remove(path)
    for path in [path for path in sys.path_importer_cache if _ARCHIVES.search(path)]:
        del sys.path_importer_cache[path]
