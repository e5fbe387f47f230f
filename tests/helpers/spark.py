"""Spark sessions for tests: one local JVM for the whole run, and drivers in subprocesses where a test needs its own.

The engine under test needs no jar. Iceberg's runtime sits on the shared session all the same, so that one JVM can serve as
the peer of the interop ring too; `plain=True` leaves it out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamlake.pipeline.spark.session import WORKER_DAEMON
from tests.helpers.jvm import LEAN, quick_jvms
from tests.helpers.processes import kill_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
ICE_CATALOG = "ice"
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
UNCOMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of a session for few rows: half of what it costs is Spark's compiler, which is none of our business here."""
QUICK = {**UNCOMPILED, "spark.python.daemon.module": WORKER_DAEMON}
"""And its workers need not import, each anew, what tasks need. The command line's own sessions have all of these."""


def session_settings(home: Path, runtime_jars: Sequence[Path] = ()) -> dict[str, str]:
    """Spark settings for a quiet session on the loopback interface; its files go below `home`.

    With `runtime_jars` it also gets the Hadoop catalog `ice`, whose warehouse is `home`/ice.
    """
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
        "spark.local.dir": str(home / "spark-local"),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -Dderby.system.home=" + str(home / "derby"),
    }
    if runtime_jars:
        settings |= {
            "spark.jars": ",".join(map(str, runtime_jars)),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            f"spark.sql.catalog.{ICE_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{ICE_CATALOG}.type": "hadoop",
            f"spark.sql.catalog.{ICE_CATALOG}.warehouse": f"file://{home / ICE_CATALOG}",
            f"spark.sql.catalog.{ICE_CATALOG}.cache-enabled": "false",
            "spark.sql.catalog.default_iceberg": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.default_iceberg.type": "hadoop",
            "spark.sql.catalog.default_iceberg.warehouse": f"file://{home / ICE_CATALOG}",
            "spark.sql.catalog.default_iceberg.cache-enabled": "false",
        }
    return settings


def build_session(
    home: Path,
    master: str = "local[2]",
    runtime_jars: Sequence[Path] = (),
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """A new session of this process; see `session_settings`."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    builder = SparkSession.builder.master(master).appName("streamlake-tests")
    for key, value in {**session_settings(home, runtime_jars), **(extra or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("STREAMLAKE_TEST_LOG_LEVEL", "OFF"))
    return session


class Borrowed:
    """The session of the tests for a command that would stop its own."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        """It goes on."""


def spark_environment() -> dict[str, str]:
    """Environment of every Spark driver: its workers run this Python and import this checkout."""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(ROOT), *_python_path()])),
    }


def cluster_home(home: Path) -> Path:
    """A SPARK_HOME of symlinks to pyspark: a local cluster writes its work directory below SPARK_HOME.

    Its configuration has executors that are for few rows as well."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home.mkdir(parents=True, exist_ok=True)
    for entry in Path(spec.origin).parent.iterdir():
        link = home / entry.name
        if entry.name != "work" and not link.exists():
            link.symlink_to(entry)
    defaults = {**UNCOMPILED, "spark.executor.extraJavaOptions": LEAN}
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in defaults.items())
    )
    return home


def run_driver(
    script: Path,
    *arguments: object,
    home: Path,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 240,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run `script` as a Spark driver of its own, working directory and logs below `home`.

    With `check`, a non-zero exit fails the test with the end of its output.
    """
    with started_driver(script, *arguments, home=home, environment=environment) as process:
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            kill_group(process)
            raise AssertionError(f"{script.name} ran over {timeout_seconds} s\n{_output(home)}") from None
    done = subprocess.CompletedProcess(
        [str(script), *map(str, arguments)],
        process.returncode,
        (home / "stdout").read_text(),
        (home / "stderr").read_text(),
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{script.name} exited with {done.returncode}\n{_output(home)}")
    return done


@contextmanager
def started_driver(
    script: Path, *arguments: object, home: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`script` as a running Spark driver, the leader of a process group that is killed at the end.

    Its output goes to `home`/stdout and `home`/stderr.
    """
    home.mkdir(parents=True, exist_ok=True)
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))
    }
    inherited |= spark_environment() | quick_jvms() | dict(environment or {})
    with open(home / "stdout", "wb") as out, open(home / "stderr", "wb") as err:
        process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            cwd=home,
            env=inherited,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            kill_group(process)


def _output(home: Path) -> str:
    return "\n".join((home / name).read_text(errors="replace")[-6000:] for name in ("stdout", "stderr"))


def _python_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
