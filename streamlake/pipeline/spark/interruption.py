"""Interruptions: a query that is stopped in the middle of a micro-batch ends without a long error.

Place in the flow: around every micro-batch. `stop` interrupts the thread that runs it, and what comes through
Python is an error with the JVM's whole stack in its text. Spark recognises an interruption by that text, with
a regular expression that recurses once per character, so a long text overflows the stack of the query's
thread. Invariant: the error of an interruption that goes back to Spark is short, and is one that Spark
recognises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
_CANCELLED = "cancelled part of cancelled job group"


class MicroBatchInterruptedError(Exception):
    """The query was stopped while the micro-batch was written; it is written again when the query goes on."""


def stopped_error(name: str = _INTERRUPTIONS[0]) -> MicroBatchInterruptedError:
    """The error by which Spark recognises an interruption; `name` is its Java class."""
    return MicroBatchInterruptedError(
        "the query was stopped while it wrote this checkpoint, which is written again, or taken from where "
        "it is staged, when the query goes on (py4j.protocol.Py4JJavaError: An error occurred while calling "
        f"the sink: {name})"
    )


@contextmanager
def short_interruptions() -> Iterator[None]:
    """Raise MicroBatchInterruptedError in place of an interruption's long error; other errors pass."""
    try:
        yield
    except Py4JJavaError as error:
        name = interruption(str(error))
        if name is None:
            raise
        raise stopped_error(name) from None


def interruption(text: str) -> str | None:
    """The Java class of the interruption that an error's text names, or None."""
    found = next((name for name in _INTERRUPTIONS if name in text), None)
    return _INTERRUPTIONS[0] if found is None and _CANCELLED in text else found
