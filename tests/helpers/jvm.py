"""How the JVMs of tests are started: they run few rows through much code, so loading and compiling it is what they cost.

The options go into the environment, where Spark's scripts look for them, whoever calls these. They are about the JVM
alone: Spark's settings stay those of the test. A run of many drivers also lets `streamlake warm-up` make its archive of
Spark's classes once, below the directory that ARCHIVE_HOME names, and all its JVMs map that. Benchmarks take nothing from
here.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.rings import PartUnavailableError

ARCHIVE_HOME = "STREAMLAKE_TEST_CLASSES"
"""Environment: where the archive is, or will be. Without it there is none."""
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The first compiler alone, and one thread that collects garbage."""
OPTIONS = f"{LEAN} -Xshare:auto -Xlog:cds*=off"
"""And no complaint about an archive that does not fit."""
_WARM_UP = ("-m", "streamlake", "warm-up")
_WARM_UP_SECONDS = 240
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class WarmUp:
    """`streamlake warm-up`, run in `place`, where it has a cache directory and nothing else."""

    place: Path
    returncode: int
    stdout: str
    stderr: str

    @property
    def cache(self) -> Path:
        return self.place / "cache"

    @property
    def archives(self) -> list[Path]:
        return sorted(self.cache.glob("streamlake/*.jsa"))


def java_program() -> str:
    """The Java that is on the PATH. Raises PartUnavailableError where there is none."""
    java = shutil.which("java")
    if java is None:
        raise PartUnavailableError("there is no java on the PATH: install a JDK or JRE, version 17 or newer")
    return java


def quick_jvms() -> dict[str, str]:
    """Environment of a process that starts Spark, itself or by spark-submit."""
    archive = _class_archive()
    shared = "" if archive is None else f" -XX:SharedArchiveFile={archive}"
    return {"SPARK_SUBMIT_OPTS": OPTIONS + shared, "SPARK_LAUNCHER_OPTS": OPTIONS}


def warm_up(home: Path) -> WarmUp:
    """The one `streamlake warm-up` of a run: what it said, after it was run in `home` by whoever needs it first."""
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _warmed_up(home)


def _class_archive() -> Path | None:
    """The archive, made by whoever asks first. None where it is not wanted, cannot be made or is not there yet."""
    if ARCHIVE_HOME not in os.environ:
        return None
    home = Path(os.environ[ARCHIVE_HOME])
    with open(home / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return next(iter(_warmed_up(home).archives), None)


def _warmed_up(home: Path) -> WarmUp:
    place, told = home / "place", home / "told.json"
    if not told.exists():
        place.mkdir()
        told.write_text(json.dumps(_run_warm_up(place)))
    return WarmUp(place, *json.loads(told.read_text()))


def _run_warm_up(place: Path) -> tuple[int, str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    try:
        done = subprocess.run(
            [sys.executable, *_WARM_UP],
            cwd=place,
            env={**kept, "XDG_CACHE_HOME": str(place / "cache"), "PYTHONPATH": str(_ROOT), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WARM_UP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "", f"not done after {_WARM_UP_SECONDS} s"
    return done.returncode, done.stdout, done.stderr
