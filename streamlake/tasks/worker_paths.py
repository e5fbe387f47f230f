"""Speeds up Spark's Python workers: archives that never change are not read again before every task.

Spark puts its core jar and the archives of pyspark and py4j on the module search path of its workers, and
before every task it makes Python drop what it has cached of that path. Interpreters before 3.13 then read the
directory of an archive again, once for each package that was imported from it: two or three tenths of a
second per task. Tasks call this module; it takes effect for the worker's next task.
"""

from __future__ import annotations

import re
import sys

_CORE_JAR = re.compile(r"[/\\]spark-core_[\d.]+-[^/\\]*\.jar(?=$|[/\\])")
_ARCHIVES = re.compile(rf"{_CORE_JAR.pattern}|[/\\](pyspark|py4j-[\d.]+-src)\.zip(?=$|[/\\])")


def keep_archive_directories() -> None:
    """Remove Spark's archives from the importers that Python refreshes, and the core jar from the search.

    A later import from an archive makes a new importer, of its directory as first read. The core jar holds no
    Python module.
    """
    for path in [path for path in sys.path if _CORE_JAR.search(path)]:
        sys.path.remove(path)
    for path in [path for path in sys.path_importer_cache if _ARCHIVES.search(path)]:
        del sys.path_importer_cache[path]
