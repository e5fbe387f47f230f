"""What Spark reads from the error of an interrupted micro-batch is short and says that it was interrupted."""

from __future__ import annotations

import re
import traceback

import pytest
from py4j.protocol import Py4JJavaError

from streamlake.pipeline.spark.interruption import MicroBatchInterruptedError, short_interruptions

# How Spark recognises an interruption that came through Python.
SPARKS_PATTERN = re.compile(
    r"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\n)*)(java.lang.InterruptedException|"
    r"java.io.InterruptedIOException|java.nio.channels.ClosedByInterruptException)"
)


class JavaError(Py4JJavaError):
    """A Py4JJavaError without a JVM to ask for its stack."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.InterruptedException",
        "java.nio.channels.ClosedByInterruptException",
        "org.apache.spark.SparkException: Job 7 cancelled part of cancelled job group 1f",
    ],
)
def test_an_interruption_is_short(text: str) -> None:
    with pytest.raises(MicroBatchInterruptedError) as raised, short_interruptions():
        raise JavaError(
            f"An error occurred while calling o1.collectToPython.\n: {text}\n" + "\tat frame\n" * 900
        )
    sent = "".join(traceback.format_exception(raised.value))
    assert SPARKS_PATTERN.search(sent)
    assert len(sent) - sent.index("py4j.protocol") < 300
    assert "\tat frame" not in sent


def test_other_errors_pass() -> None:
    with pytest.raises(JavaError, match="NullPointerException"), short_interruptions():
        raise JavaError("An error occurred while calling o1.x.\n: java.lang.NullPointerException")
    with pytest.raises(KeyError), short_interruptions():
        raise KeyError("a")
