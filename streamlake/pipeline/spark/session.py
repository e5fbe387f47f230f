"""The Spark session of the command line and of the jobs: Java is checked first, and the defaults log little.

Place in the flow: before everything else. Under spark-submit the JVM and its settings are there already and
are left alone; elsewhere a local master listens on 127.0.0.1 only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession as SparkSession

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.spark.class_archive import archive_path, mapping_options
from streamlake.pipeline.spark.spark_traces import traces_wanted

MINIMUM_JAVA = 17
WORKER_DAEMON = "streamlake.pipeline.spark.worker_daemon"
QUIET_LOG_LEVELS = ("OFF", "FATAL", "ERROR")
LOG_LEVELS = (*QUIET_LOG_LEVELS, "WARN", "INFO", "DEBUG", "TRACE", "ALL")

_INSTALL = (
    f"Java {MINIMUM_JAVA}+ is needed: install e.g. `apt install openjdk-17-jre-headless` or set JAVA_HOME"
)


def under_spark_submit() -> bool:
    """True where spark-submit has started this process, so that master and settings come from there."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_java() -> str:
    """The output of `java -version` of the Java that Spark would start. Raises InvalidOptionError where there
    is none or it is too old, and says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise InvalidOptionError(f"there is no `java` on the PATH. {_INSTALL}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        origin = f"JAVA_HOME is {home}, but " if home else ""
        raise InvalidOptionError(f"{origin}{java} cannot be run ({error}). {_INSTALL}") from error
    found = java_major(answer.stderr + answer.stdout)
    if found is None:
        text = " ".join((answer.stderr + answer.stdout).split())[:200]
        raise InvalidOptionError(f"`{java} -version` does not name a version ({text!r}). {_INSTALL}")
    if found < MINIMUM_JAVA:
        raise InvalidOptionError(f"{java} is Java {found}, which is too old. {_INSTALL}")
    return answer.stderr + answer.stdout


def java_major(text: str) -> int | None:
    """The major version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_292", or None."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first = int(match[1])
    return int(match[2]) if first == 1 and match[2] else first


LEAN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options of a driver that no record passes through: the direct path plans, and moves shuffle blocks.
Compiling a second time, and the threads of a larger collector, would cost more than they gain."""
_LEAN_SQL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Compiling its few plans would not pay off either."""


@contextmanager
def started_session(app_name: str, *, is_lean: bool, **given: Any) -> Iterator[Callable[[], SparkSession]]:
    """A session that starts in the background while the caller prepares its work: yields a function that
    waits for the session and returns it. The session is stopped at the end. Its JVM has a process group of
    its own, so that a signal to the caller's group leaves the stopping to the caller.

    `is_lean`: no record passes through the driver. Other arguments and errors: see `spark_session`.
    """
    with ThreadPoolExecutor(1, "streamlake-session") as thread:
        start = _lean if is_lean else spark_session
        starting: Future[SparkSession] = thread.submit(lambda: start(app_name, is_apart=True, **given))
        try:
            yield starting.result
        finally:
            if starting.exception() is None:
                starting.result().stop()


def _lean(app_name: str, **given: Any) -> SparkSession:
    return lean_spark(app_name, _archive_options(check_java()), **given)


def _archive_options(java: str) -> str:
    try:
        archive = archive_path(java, LEAN_JVM)
        return mapping_options(archive) if archive.exists() else ""
    except (OSError, RuntimeError):
        # There is no home directory, or it cannot be read.
        return ""


def lean_spark(
    app_name: str, java_options: str, *, config: Mapping[str, str] | None = None, **given: Any
) -> SparkSession:
    """`spark_session` for a driver that no record passes through."""
    options = f"{LEAN_JVM} {java_options}".rstrip()
    return spark_session(app_name, config={**_LEAN_SQL, **(config or {})}, java_options=options, **given)


def spark_session(
    app_name: str,
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
    java_options: str = "",
    is_apart: bool = False,
) -> SparkSession:
    """A Spark session for `app_name`; `config` overrides the defaults set here. `java_options` go to a JVM
    that is started here; with `is_apart` it is in a process group of its own. It ends with this process
    either way.

    `master` None is `local[*]`, or what spark-submit was given. Raises InvalidOptionError where Java is
    missing or too old, where the log level is unknown, or where Spark refuses the master or a setting.
    """
    if log_level.upper() not in LOG_LEVELS:
        raise InvalidOptionError(f"log-level '{log_level}' is none of {', '.join(LOG_LEVELS)}")
    given = dict(config or {})
    submitted = under_spark_submit()
    if not submitted:
        check_java()
        master = master or given.get("spark.master") or "local[*]"
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    settings = _defaults(master, submitted=submitted, log_level=log_level.upper(), java_options=java_options)
    for key, value in {**settings, **given}.items():
        builder = builder.config(key, value)
    try:
        if is_apart and not submitted:
            _start_apart(app_name, {**settings, **given, "spark.master": str(master)})
        spark = builder.getOrCreate()
    except Exception as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidOptionError(f"Spark could not be started on master '{master}': {first_line}") from error
    spark.sparkContext.setLogLevel(log_level.upper())
    return spark


def _start_apart(app_name: str, config: Mapping[str, str]) -> None:
    """Start the JVM in a session of its own. SIGTERM to the process group (a container's stop, `timeout`,
    systemd) would otherwise end it while the query is still to be stopped through it.
    """
    is_remote = "SPARK_REMOTE" in os.environ or "spark.remote" in config
    if is_remote or SparkContext._gateway is not None or os.name != "posix":
        return
    conf = SparkConf().setAppName(app_name).setAll(list(config.items()))
    gateway = launch_gateway(conf, {"start_new_session": True})
    SparkContext(conf=conf, gateway=gateway)


def _defaults(master: str | None, *, submitted: bool, log_level: str, java_options: str) -> dict[str, str]:
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.session.timeZone": "UTC",
    }
    if submitted:
        return settings
    copies = "OFF" if log_level in QUIET_LOG_LEVELS and not traces_wanted() else log_level
    log4j = resources.files("streamlake.pipeline.spark").joinpath("log4j2.properties")
    settings |= {
        "spark.python.daemon.module": WORKER_DAEMON,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log4j}" '
        f"-Dstreamlake.log.level={log_level} -Dstreamlake.log.copies={copies} {java_options}".rstrip(),
    }
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        }
    return settings
