"""The engines of the comparison and their commands. Which of them take part in a job is the job's matter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.peers.measured import measured
from tests.bench.peers.parts import class_path
from tests.helpers.jvm import java_program
from tests.helpers.spark import spark_environment

HERE = Path(__file__).parent
STREAMLAKE, STREAMLAKE_V2, FLINK = "streamlake", "streamlake-v2", "flink"
SPARK, SPARK_V3 = "spark", "spark-v3"
ENGINES = (STREAMLAKE, STREAMLAKE_V2, FLINK, SPARK, SPARK_V3)
NAMES = {FLINK: "Flink's sink", SPARK: "Spark's Kafka source", SPARK_V3: "Spark's Kafka source, v3"}
_OPENED = ("java.util", "java.lang", "java.lang.invoke", "java.nio", "java.time", "java.net", "sun.nio.ch")


@dataclass(frozen=True)
class Pace:
    """How often is committed: `batch` messages per micro-batch in Spark, `checkpoint_ms` in Flink."""

    batch: int
    checkpoint_ms: int


def location(home: Path) -> Path:
    """Where the table of a run in `home` is."""
    return home / "ice" / "db" / "t"


def run(
    engine: str, job: str, servers: str, topic: str, home: Path, pace: Pace, timeout_seconds: float
) -> dict[str, Any]:
    """One run of `job` (append, upsert or debezium) in processes of its own; see `measured`."""
    if engine == FLINK:
        return measured(_flink(servers, topic, job, home, pace), home, {}, timeout_seconds)
    name, _, version = engine.partition("-v")
    script = {"streamlake": "our_run.py", "spark": "spark_run.py"}[name]
    mode = f"{job}-v{version}" if version else job
    command = [sys.executable, str(HERE / script), servers, topic, mode, str(location(home)), str(pace.batch)]
    environment = spark_environment()
    if name == STREAMLAKE:
        environment |= _warmed_up(home.parent, environment)
    return measured(command, home, environment, timeout_seconds)


def _warmed_up(work: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a machine on which `streamlake warm-up` was run once, which is done where it was not."""
    added = {"XDG_CACHE_HOME": str(work / "cache")}
    if not list((work / "cache").rglob("*.jsa")):
        command = [sys.executable, "-m", "streamlake", "warm-up"]
        subprocess.run(
            command, env={**environment, **added}, stdout=subprocess.DEVNULL, check=True, timeout=300
        )
    return added


def checked(
    tables: Mapping[str, Path], scanned: Sequence[str], scans: int, home: Path, timeout_seconds: float
) -> dict[str, Any]:
    """Rows, checksum and, of those `scanned`, scan times of each table; see `check_run`."""
    pairs = [f"{name}={where}" for name, where in tables.items()]
    command = [sys.executable, str(HERE / "check_run.py"), str(scans), ",".join(scanned), *pairs]
    return measured(command, home, spark_environment(), timeout_seconds)


def _flink(servers: str, topic: str, job: str, home: Path, pace: Pace) -> list[str]:
    options = ["-Xmx4g", "-XX:+UseParallelGC", "-Duser.timezone=UTC", f"-Djava.io.tmpdir={home}"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    options += ["-cp", os.pathsep.join(map(str, class_path())), "FlinkPeer"]
    return [java_program(), *options, servers, topic, job, str(location(home)), str(pace.checkpoint_ms)]
