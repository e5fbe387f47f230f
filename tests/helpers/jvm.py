"""How the JVMs of tests are started: they run few rows through much code, so loading and compiling it is what they cost.

The options go into the environment, where Spark's scripts look for them, whoever calls these. They are about the JVM
alone: Spark's settings stay those of the test. A run of many drivers also makes an archive of Spark's classes once, in
the directory that ARCHIVE_HOME names, and all its JVMs map that. Benchmarks take nothing from here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers.rings import PartUnavailableError

ARCHIVE_HOME = "STREAMLAKE_TEST_CLASSES"
"""Environment: where the archive is, or will be. Without it there is none."""
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:cds*=off"
"""The first compiler alone, one thread that collects garbage, and no complaint about an archive that does not fit."""
_MAKER = Path(__file__).with_name("class_archive.py")
_MAKER_SECONDS = 150


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


def _class_archive() -> Path | None:
    """The archive, made by whoever asks first. None where it is not wanted, cannot be made or is not there yet."""
    if ARCHIVE_HOME not in os.environ:
        return None
    home = Path(os.environ[ARCHIVE_HOME])
    archive, log = home / "spark.jsa", home / "log"
    with open(home / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if not log.exists():
            _make(archive, log)
        return archive if archive.exists() else None


def _make(archive: Path, log: Path) -> None:
    options = f"{OPTIONS} -XX:ArchiveClassesAtExit={archive}"
    with open(log, "wb") as output:
        try:
            subprocess.run(
                [sys.executable, str(_MAKER), str(archive.parent / "maker")],
                env={**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LAUNCHER_OPTS": OPTIONS},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_MAKER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            archive.unlink(missing_ok=True)
