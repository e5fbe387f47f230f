"""The Python of the workers: the driver's in local mode, the user's own choice, and what is said of a wrong one."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.spark.task_outcome import raised_on_executor
from streamlake.pipeline.spark.worker_python import unusable_workers, usable_session

CONNECT = "^make the session where the driver runs, by SparkSession.builder.master.* Spark Connect"


def _session(master: str, settings: tuple[str, ...] = ()) -> Any:
    conf = SimpleNamespace(contains=lambda name: name in settings)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(pythonExec="python3", master=master, getConf=lambda: conf)
    )


@pytest.mark.parametrize(
    ("master", "settings", "variable", "expected"),
    [
        ("local[2]", (), "", sys.executable),
        ("local-cluster[2,1,1024]", (), "", sys.executable),
        ("spark://host:7077", (), "", "python3"),
        ("local[2]", ("spark.pyspark.python",), "", "python3"),
        ("local[2]", (), "/opt/python", "python3"),
    ],
)
def test_in_local_mode_it_is_the_drivers_unless_the_user_has_set_one(
    master: str, settings: tuple[str, ...], variable: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", variable)
    session = _session(master, settings)
    assert usable_session(session) is session
    assert session.sparkContext.pythonExec == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python3: Error while finding module specification (ModuleNotFoundError: No module named 'streamlake')", "has no module streamlake"),
        ("/usr/bin/python3: No module named pyspark", "has no module pyspark"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11", "is Python 3.9"),
        ('java.io.IOException: Cannot run program "/opt/bin/python3": error=2', "cannot be started there"),
    ],
)  # fmt: skip
def test_a_wrong_python_is_one_sentence_that_begins_with_what_to_set(text: str, said: str) -> None:
    error = raised_on_executor(RuntimeError(f"Job aborted\n{text}\n\tat org.apache.spark.Task.run\n"))
    assert isinstance(error, InvalidOptionError)
    assert str(error).startswith("set PYSPARK_PYTHON before the session is made, to a Python ")
    assert f"which {said} (docs/guides/deploying.md)" in str(error)
    assert "\n" not in str(error)


def test_other_errors_are_left_alone() -> None:
    assert unusable_workers("ModuleNotFoundError: No module named 'mine'") is None
    assert unusable_workers('Cannot run program "chmod"') is None


class _ConnectSession:
    """As Spark Connect's session: it has no context."""


_ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_spark_connect_is_refused_at_start() -> None:
    with pytest.raises(InvalidOptionError, match=CONNECT):
        IcebergSink("/nowhere").start(
            SimpleNamespace(sparkSession=_ConnectSession()),  # type: ignore[arg-type]
            checkpoint_location="/nowhere/checkpoint",
        )


def test_spark_connect_is_refused_in_foreach_batch() -> None:
    sink = IcebergSink("/nowhere")
    with pytest.raises(InvalidOptionError, match=CONNECT):
        sink(SimpleNamespace(sparkSession=_ConnectSession()), 0)  # type: ignore[arg-type]
    assert isinstance(sink.error, InvalidOptionError)
