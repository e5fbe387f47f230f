"""What the key index of a large table costs: a restart after SIGKILL, beside a rescan of the table, and memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.report import Figure
from tests.helpers.spark import ROOT, spark_environment

Run = Callable[..., dict[str, Any]]
_COMMITS_BEFORE_KILL = 3


def bench_key_index(work: Path, base: Path, changes: Path, run: Run) -> tuple[list[Figure], dict[str, Any]]:
    """`base` is a table of 10M keys, `changes` files of upserts to it."""
    home = work / "restart"
    shutil.rmtree(home, ignore_errors=True)
    _write_until_killed(changes, home, base)
    restart = run("restart_run.py", "first", changes, home)
    shutil.rmtree(home / "table" / "metadata" / "_index")
    rescan = run("restart_run.py", "first", changes, home)
    memory_home = work / "memory"
    shutil.rmtree(memory_home, ignore_errors=True)
    run("memory_run.py", "build", memory_home, base, changes)
    memory = run("memory_run.py", "write", memory_home, base, changes)
    first = "first_commit_seconds"
    return [
        Figure("upsert, 10M keys, restart after SIGKILL", "s", restart[first], None, "goal", "lower", 10),
        Figure("upsert, 10M keys, restart", "s", restart[first], rescan[first], "rescan", "lower", None),
        Figure(
            "upsert, 10M keys, rows read at restart",
            "rows",
            restart["rows_indexed"],
            None,
            "goal",
            "lower",
            0,
        ),
        Figure(
            "upsert, memory with a bucket of 10M keys",
            "MB",
            memory["peak_resident_mb"],
            None,
            "goal",
            "lower",
            512,
        ),
    ], {"key_index": {"restart": restart, "rescan": rescan, "memory": memory}}


def _write_until_killed(changes: Path, home: Path, base: Path) -> None:
    script = Path(__file__).with_name("restart_run.py")
    command = [sys.executable, str(script), "write", str(changes), str(home), str(base)]
    environment = {**os.environ, **spark_environment()}
    home.mkdir(parents=True)
    driver = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    commits = 0
    assert driver.stderr is not None
    try:
        for line in driver.stderr:
            commits += line.startswith("checkpoint ")
            if commits == _COMMITS_BEFORE_KILL:
                break
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        driver.stderr.close()
    if commits < _COMMITS_BEFORE_KILL:
        raise SystemExit(f"the driver ended by itself after {commits} commits")
