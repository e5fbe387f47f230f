"""Java parts of the rings, fetched by the Ivy jar that pyspark ships into a cache directory.

The cache is `$STREAMLAKE_TEST_CACHE`, else `~/.cache/streamlake-tests`. A part is fetched into a temporary directory and
renamed into place only when the expected number of files arrived, under a lock file, so that a cache entry is either
complete or absent, whatever is killed meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tests.helpers.jvm import java_program
from tests.helpers.rings import PartUnavailableError

FETCH_TIMEOUT_SECONDS = 900
FETCH_PAUSES = (2.0, 10.0)
"""Seconds before a fetch is tried again: what a registry refuses for a moment fails no test."""
_WITHOUT_POMS = (
    '<ivysettings><settings defaultResolver="public"/><resolvers>'
    '<ibiblio name="public" m2compatible="true" usepoms="false" useMavenMetadata="false" checksums="sha1"/>'
    "</resolvers></ivysettings>"
)


@dataclass(frozen=True)
class Artifact:
    """One Maven artifact; `transitive` takes what it depends on along. A `classifier` names another file of it."""

    organisation: str
    name: str
    revision: str
    transitive: bool = True
    classifier: str = ""
    extension: str = "jar"

    def to_xml(self) -> str:
        fields = {"org": self.organisation, "name": self.name, "rev": self.revision}
        attributes = " ".join(f"{key}={quoteattr(value)}" for key, value in fields.items())
        opening = (
            f'<dependency {attributes} conf="default->default" transitive="{str(self.transitive).lower()}"'
        )
        if not self.classifier:
            return f"{opening}/>"
        file = f'name={quoteattr(self.name)} type="{self.extension}" ext="{self.extension}"'
        return f"{opening}><artifact {file} m:classifier={quoteattr(self.classifier)}/></dependency>"


@dataclass(frozen=True)
class Part:
    """A set of artifacts that is cached as one directory, `directory`, of at least `file_count` files of `pattern`."""

    directory: str
    artifacts: tuple[Artifact, ...]
    file_count: int
    pattern: str = "*.jar"


def listed(directory: str) -> Part:
    """A part whose jars stand one by one in `parts/<directory>.txt`: organisation, name, revision.

    Fetched without asking what depends on what, which takes Ivy a second per jar.
    """
    lines = (Path(__file__).with_name("parts") / f"{directory}.txt").read_text().split("\n")
    artifacts = tuple(Artifact(*line.split(), transitive=False) for line in lines if line)
    return Part(directory, artifacts, len(artifacts))


KAFKA_BROKER = listed("kafka-4.1.2")
KAFKA_CONNECT = listed("kafka-connect-4.1.2")
DEBEZIUM_POSTGRES = listed("debezium-connector-postgres-3.7.0")
DEBEZIUM_MARIADB = listed("debezium-connector-mariadb-3.5.0")
SQLITE_JDBC = Part(
    "sqlite-jdbc-3.50.3.0", (Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0", transitive=False),), 1
)
HIVE_METASTORE = Part(
    "hive-standalone-metastore-3.1.3",
    (Artifact("org.apache.hive", "hive-standalone-metastore", "3.1.3", False, "bin", "tar.gz"),),
    1,
    "*.tar.gz",
)
HADOOP_AWS = listed("hadoop-aws-3.4.2")
"""Without the bundle of AWS's whole SDK, which is half a gigabyte: the parts of it that S3A uses."""
HADOOP_MINICLUSTER = listed("hadoop-minicluster-3.4.2")
HIVE_METASTORE_EXTRAS = listed("hive-metastore-extras")
SCHEMA_REGISTRY = Part(
    "apicurio-registry-3.3.3",
    (Artifact("io.apicurio", "apicurio-registry-app", "3.3.3", False, "all", "tar.gz"),),
    1,
    "*.tar.gz",
)


ICEBERG_VERSION = "1.12.0"
ICEBERG_SPARKS = ("4.0", "4.1")
"""Versions of Spark that Iceberg's runtime of that version exists for."""


def iceberg_runtime() -> Part:
    """Iceberg's runtime for the Spark that is installed. Raises PartUnavailableError where there is none for it."""
    missing = missing_iceberg_runtime()
    if missing is not None:
        raise PartUnavailableError(missing)
    name = f"iceberg-spark-runtime-{_spark_line()}_2.13"
    runtime = Artifact("org.apache.iceberg", name, ICEBERG_VERSION, transitive=False)
    return Part(f"{name}-{ICEBERG_VERSION}", (runtime,), 1)


def missing_iceberg_runtime() -> str | None:
    """Why Iceberg's runtime cannot be fetched for the Spark that is installed; None where it exists."""
    if _spark_line() in ICEBERG_SPARKS:
        return None
    return (
        f"Iceberg's Spark runtime {ICEBERG_VERSION} exists for Spark {' and '.join(ICEBERG_SPARKS)}, "
        f"and PySpark {version('pyspark')} is installed"
    )


def _spark_line() -> str:
    return ".".join(version("pyspark").split(".")[:2])


def cache_root() -> Path:
    """Where fetched parts stay between runs."""
    return Path(os.environ.get("STREAMLAKE_TEST_CACHE") or Path.home() / ".cache" / "streamlake-tests")


def jars(part: Part) -> list[Path]:
    """The files of `part`, fetched on first use. Raises PartUnavailableError with the reason when they cannot be had."""
    home = cache_root() / part.directory
    if not _is_complete(home, part):
        with locked(home):
            if not _is_complete(home, part):
                _fetch_patiently(part, home)
    return sorted(home.glob(part.pattern))


def ivy_file(part: Part) -> str:
    """The ivy.xml that asks for `part`."""
    dependencies = "".join(artifact.to_xml() for artifact in part.artifacts)
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="streamlake" module="tests"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def ivy_jar() -> Path:
    """The Ivy jar inside pyspark."""
    return pyspark_jars("ivy")[0]


def pyspark_jars(name: str) -> list[Path]:
    """The jars `name`-*.jar that pyspark brings. Raises PartUnavailableError when there is none."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PartUnavailableError("pyspark is not installed, and it brings the Ivy that fetches jars")
    found = sorted((Path(spec.origin).parent / "jars").glob(f"{name}-[0-9]*.jar"))
    if not found:
        raise PartUnavailableError(f"no {name}-*.jar among the jars of pyspark {version('pyspark')}")
    return found


def _is_complete(home: Path, part: Part) -> bool:
    return len(list(home.glob(part.pattern))) >= part.file_count


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """While nobody else fetches or unpacks into `home`."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.with_name(f"{home.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_patiently(part: Part, home: Path) -> None:
    for pause in FETCH_PAUSES:
        try:
            return _fetch(part, home)
        except PartUnavailableError:
            time.sleep(pause)
    _fetch(part, home)


def _fetch(part: Part, home: Path) -> None:
    java = java_program()
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as work:
        request, target = Path(work, "ivy.xml"), Path(work, "jars")
        request.write_text(ivy_file(part))
        command = [
            java,
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-jar",
            str(ivy_jar()),
            "-warn",
        ]
        command += ["-cache", f"{work}/cache", "-ivy", str(request), "-confs", "default"]
        if not any(artifact.transitive or artifact.classifier for artifact in part.artifacts):
            settings = Path(work, "settings.xml")
            settings.write_text(_WITHOUT_POMS)
            command += ["-settings", str(settings)]
        command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise PartUnavailableError(
                f"fetching {part.directory} took over {FETCH_TIMEOUT_SECONDS} s"
            ) from None
        count = len(list(target.glob(part.pattern)))
        if count < part.file_count:
            complaints = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()][
                -5:
            ]
            raise PartUnavailableError(
                f"fetching {part.directory} brought {count} of {part.file_count} files: {' / '.join(complaints)}"
            )
        shutil.rmtree(home, ignore_errors=True)
        target.rename(home)
