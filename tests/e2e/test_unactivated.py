"""A virtual environment's python by its path, without activating it: `python3` on the PATH is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command_line import environment

PROGRAM = Path(__file__).with_name("unactivated.py")


def _bare_python(home: Path) -> Path:
    """A Python without any package, called python3."""
    path = home / "bin" / "python3"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return path


def _ran(home: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(home)],
        cwd=home,
        env=environment(
            {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", **extra}
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.spark
def test_the_workers_of_local_mode_run_the_drivers_python(tmp_path: Path) -> None:
    _bare_python(tmp_path)
    done = _ran(tmp_path)
    assert (done.returncode, done.stdout) == (0, "10 rows\n"), done.stderr[-2000:]


@pytest.mark.spark
def test_workers_that_cannot_run_tasks_are_one_error_that_is_printed_last(tmp_path: Path) -> None:
    python = _bare_python(tmp_path)
    done = _ran(tmp_path, PYSPARK_PYTHON=str(python))
    lines = done.stderr.splitlines()
    begin = lines.index("Traceback (most recent call last):")
    assert done.returncode == 1
    assert len(lines) - begin <= 12, done.stderr[-2000:]
    assert lines[-1].startswith(
        "streamlake.errors.InvalidOptionError: set PYSPARK_PYTHON before the session is made, to a Python "
    )
    assert f"the workers run '{python}', which has no module pyspark (docs/guides/deploying.md)" in lines[-1]
