"""Java is looked for before Spark is started, and a missing or old one is answered with what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.spark import session

NEEDED = r"Java 17\+ is needed: install e\.g\. `apt install openjdk-17-jre-headless` or set JAVA_HOME"


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no java here", None),
    ],
)
def test_java_major(text: str, major: int | None) -> None:
    assert session.java_major(text) == major


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidOptionError, match=f"there is no `java` on the PATH. {NEEDED}"):
        session.check_java()


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidOptionError, match=f"JAVA_HOME is .* cannot be run .*{NEEDED}"):
        session.check_java()


def test_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidOptionError, match=f"is Java 11, which is too old. {NEEDED}"):
        session.spark_session("test")


def test_java_without_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path, "surprise")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidOptionError, match=f"does not name a version .*surprise.*{NEEDED}"):
        session.check_java()


def test_new_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert session.java_major(session.check_java()) == 21


def test_unknown_log_level() -> None:
    with pytest.raises(InvalidOptionError, match="log-level 'loud' is none of OFF, FATAL, ERROR"):
        session.spark_session("test", log_level="loud")


@pytest.mark.parametrize(
    ("level", "debug", "copies"),
    [("ERROR", "", "OFF"), ("ERROR", "1", "ERROR"), ("WARN", "", "WARN"), ("FATAL", "0", "OFF")],
)
def test_sparks_copy_of_an_error_is_shown_on_request(
    level: str, debug: str, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMLAKE_DEBUG", debug)
    settings = session._defaults("yarn", submitted=False, log_level=level, java_options="")
    assert f"-Dstreamlake.log.copies={copies}" in settings["spark.driver.extraJavaOptions"].split()


def _fake_java(home: Path, answer: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    java.chmod(0o755)


def test_pysparks_warning_about_pandas_is_left_out_where_no_pandas_is_used() -> None:
    modules = ("connect.utils", "pandas.functions", "pandas.conversion")
    script = (
        "import warnings, streamlake\n"
        "for each in " + repr(modules) + ":\n"
        "    text = 'PySpark does not yet fully support pandas >= 3.0.0. Some features may not work correctly.'\n"
        "    warnings.warn_explicit(text, FutureWarning, each, 1, module=f'pyspark.sql.{each}')\n"
        "warnings.warn_explicit('something else', FutureWarning, 'other', 1, module='pyspark.sql.pandas.functions')\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    assert [line.partition(":")[0] for line in told.splitlines()] == ["pandas.conversion", "other"]
