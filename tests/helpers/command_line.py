"""`streamlake` as a user starts it: a process of its own, in a directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.jvm import quick_jvms
from tests.helpers.spark import ROOT


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that steers Spark: the command sets that up by itself."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    return {**kept, **quick_jvms(), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **(extra or {})}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "streamlake", *map(str, arguments)]


def streamlake(
    *arguments: object, cwd: Path, extra: Mapping[str, str] | None = None, timeout_seconds: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end and return its exit code and output."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
    )


def without_jvm_notice(stderr: str) -> list[str]:
    """The lines on stderr, without the one that every JVM with Spark's modules prints."""
    return [line for line in stderr.splitlines() if "Using incubator modules" not in line]
