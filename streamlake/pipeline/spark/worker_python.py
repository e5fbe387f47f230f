"""The Python that Spark's workers run, and the sessions whose workers a sink cannot use.

Place in the flow: before a query starts, and before each micro-batch. Spark decides about the workers' Python
when its context is created: PYSPARK_PYTHON, else whatever `python3` is on the PATH, which is not that of a
virtual environment that was never activated. Invariant: what the user has set is left alone.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from pyspark import SparkContext

from streamlake.errors import InvalidOptionError

_VARIABLE = "PYSPARK_PYTHON"
_SETTING = "spark.pyspark.python"
_CONNECT = "pyspark.sql.connect."
_UNUSABLE = (
    (re.compile(r"No module named '?(streamlake[\w.]*|pyarrow|pyspark)\b"), "has no module {0}"),
    (re.compile(r"Python in worker has different version: \W*(\d+)\W+(\d+)"), "is Python {0}.{1}"),
    (re.compile(r'Cannot run program "[^"]*python[^"]*"'), "cannot be started there"),
)
"""What Spark's errors say of workers that cannot run a sink's tasks, and how a message says it."""


def usable_session(session: Any) -> Any:
    """The session, once its workers run the right Python; in local mode that is the driver's.

    Raises InvalidOptionError for a session of Spark Connect, where there is no driver to commit on.
    """
    if type(session).__module__.startswith(_CONNECT):
        raise InvalidOptionError(
            "make the session where the driver runs, by SparkSession.builder.master(...) or spark-submit, "
            "without .remote(...) and SPARK_REMOTE: this is a session of Spark Connect, and a sink cannot "
            "commit from there"
        )
    if not os.environ.get(_VARIABLE) and sys.executable:
        context = session.sparkContext
        if (
            context.pythonExec != sys.executable
            and context.master.startswith("local")
            and not context.getConf().contains(_SETTING)
        ):
            context.pythonExec = sys.executable
    return session


def unusable_workers(text: str) -> InvalidOptionError | None:
    """What to set, where `text` is of a job that failed because of its workers' Python; None for others."""
    for words, cause in _UNUSABLE:
        found = words.search(text)
        if found is not None:
            context = SparkContext._active_spark_context
            python = "python3" if context is None else context.pythonExec
            said = cause.format(*found.groups())
            version = ".".join(map(str, sys.version_info[:2]))
            return InvalidOptionError(
                f"set {_VARIABLE} before the session is made, to a Python {version} with streamlake on every "
                f"node: the workers run '{python}', which {said} (docs/guides/deploying.md)"
            )
    return None
