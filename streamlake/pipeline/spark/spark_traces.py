"""Whether Spark's copy of an error is shown: its own log of it, and the trace through the JVM.

Invariant: without it nothing is lost that says what to do, because our error is raised and printed anyway.
"""

from __future__ import annotations

import os

DEBUG_VARIABLE = "STREAMLAKE_DEBUG"
"""The environment variable behind `--debug`, which programs may set as well."""


def traces_wanted() -> bool:
    """True where `--debug` was given, or STREAMLAKE_DEBUG is set to anything but 0."""
    return os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")


def plain(error: BaseException) -> BaseException:
    """The sink's `error`, to be raised in place of Spark's. Unless traces are wanted it has none, and Python
    prints it with the line of the program that waited for the query.
    """
    return error if traces_wanted() else error.with_traceback(None)
