"""Fixtures of the whole suite: the rings' parts, one Spark session, the readers; and the account of what was skipped."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import lanes, rings
from tests.helpers.jars import iceberg_runtime, jars, missing_iceberg_runtime
from tests.helpers.jvm import ARCHIVE_HOME, OPTIONS, quick_jvms
from tests.helpers.readers import ChdbReader, DuckDbReader, JavaReader, PyIcebergReader, Reader, SparkReader
from tests.helpers.rings import PartUnavailableError
from tests.helpers.spark import QUICK, build_session, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker
    from tests.helpers.flink_tables import FlinkTable
    from tests.helpers.hdfs_server import HdfsServer
    from tests.helpers.hive_server import HiveServer
    from tests.helpers.postgres import PostgresServer

os.environ.update(spark_environment())
DRIVERS_WORTH_AN_ARCHIVE = 20
"""What an archive of Spark's classes costs is what it saves for three or four drivers; most tests use less than one."""


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared session keeps its files; the warehouse of its catalog `ice` is `spark_home / "ice"`."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    """The one Spark session of the run: local[2], with Iceberg's runtime as a peer where it can be had."""
    from pyspark import SparkContext

    assert SparkContext._active_spark_context is None, "a test has started Spark without the fixture `spark`"
    try:
        runtime = jars(iceberg_runtime())
    except PartUnavailableError:
        runtime = []
    os.environ.update(quick_jvms())
    session = build_session(spark_home, runtime_jars=runtime, extra=QUICK)
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture(scope="session")
def iceberg_spark(spark: SparkSession) -> SparkSession:
    """The shared session, only where Iceberg's own runtime is on it."""
    try:
        jars(iceberg_runtime())
    except PartUnavailableError as error:
        rings.give_up("interop", error)
    return spark


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real Kafka broker for the whole run; its log stays in the run's temporary directory."""
    from tests.helpers.broker import KafkaBroker

    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
    except PartUnavailableError as error:
        rings.give_up("kafka", error)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL for the whole run, with databases that tests make for themselves."""
    from tests.helpers.postgres import PostgresServer

    server = PostgresServer()
    try:
        server.__enter__()
    except PartUnavailableError as error:
        rings.give_up("postgres", error)
    try:
        yield server
    finally:
        server.__exit__()


@pytest.fixture(scope="session")
def hive_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveServer]:
    """A real Hive metastore for the whole run."""
    from tests.helpers.hive_server import HiveServer

    server = HiveServer(tmp_path_factory.mktemp("hive"))
    try:
        server.__enter__()
    except PartUnavailableError as error:
        rings.give_up("hive", error)
    try:
        yield server
    finally:
        server.__exit__()


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """A real HDFS for the whole run."""
    from tests.helpers.hdfs_server import HdfsServer

    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    try:
        server.__enter__()
    except PartUnavailableError as error:
        rings.give_up("hdfs", error)
    try:
        yield server
    finally:
        server.__exit__()


@pytest.fixture(scope="session")
def flink_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FlinkTable]:
    """Tables that Flink's Iceberg sink has upserted, by name; Flink itself has ended. Tests that write `fork` one first."""
    from tests.helpers.flink import FlinkEngine
    from tests.helpers.flink_tables import fill_tables

    try:
        with FlinkEngine(tmp_path_factory.mktemp("flink"), jvm_options=OPTIONS.split()) as engine:
            return fill_tables(engine)
    except PartUnavailableError as error:
        rings.give_up("interop", error)


@pytest.fixture(scope="session")
def spark_reader(iceberg_spark: SparkSession) -> SparkReader:
    return SparkReader(iceberg_spark)


@pytest.fixture(scope="session")
def java_reader(iceberg_spark: SparkSession) -> JavaReader:
    return JavaReader(iceberg_spark)


@pytest.fixture(scope="session")
def duckdb_reader() -> Iterator[DuckDbReader]:
    reader = DuckDbReader()
    yield reader
    reader.connection.close()


@pytest.fixture(scope="session")
def pyiceberg_reader() -> PyIcebergReader:
    return PyIcebergReader()


@pytest.fixture(scope="session")
def chdb_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChdbReader]:
    reader = ChdbReader(tmp_path_factory.mktemp("chdb"))
    yield reader
    reader.close()


@pytest.fixture(scope="session")
def peer_reader(request: pytest.FixtureRequest) -> Reader:
    """Another engine than ours: Iceberg's Spark runtime or, with a Spark that it does not exist for, DuckDB."""
    reader: Reader = request.getfixturevalue("duckdb_reader" if missing_iceberg_runtime() else "spark_reader")
    return reader


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """TruncatePosition by what a test uses, so that `-m 'not kafka'` and the like choose rings.

    Tests that need Iceberg's Spark runtime are deselected with a Spark that it does not exist for.
    """
    has_runtime = missing_iceberg_runtime() is None
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "kafka_broker" in fixtures:
            item.add_marker("kafka")
        if "postgres_server" in fixtures:
            item.add_marker("postgres")
        if "hive_server" in fixtures:
            item.add_marker("hive")
        if "hdfs_server" in fixtures:
            item.add_marker("hdfs")
        in_interop = "/tests/interop/" in item.path.as_posix()
        if "iceberg_spark" in fixtures or in_interop:
            item.add_marker("iceberg_runtime")
        by_runtime = has_runtime and "peer_reader" in fixtures
        if fixtures & {"iceberg_spark", "flink_tables"} or in_interop or by_runtime:
            item.add_marker("interop")
        if "spark" in fixtures or by_runtime:
            item.add_marker("spark")
    if not has_runtime:
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("iceberg_runtime")]
        )
        items[:] = [item for item in items if not item.get_closest_marker("iceberg_runtime")]
    weights: Counter[str] = Counter()
    for item in items:
        group = lanes.group_of(item.nodeid)
        weights[group] = max(weights[group], _weight(item))
    items.sort(key=lambda item: _turn(item, weights[lanes.group_of(item.nodeid)]))


def _turn(item: pytest.Item, group_weight: int) -> tuple[bool, int, int]:
    """Groups without Spark first: a mistake shows within seconds, and the JVM starts once, late, when the archive of its
    classes is there. Then what takes long."""
    return group_weight > 0, lanes.turn_of(item.nodeid) if group_weight else 0, group_weight


def _weight(item: pytest.Item) -> int:
    heavy = {"spark", "interop", "kafka", "cluster", "crash"}
    return len(heavy & {mark.name for mark in item.iter_markers()})


def pytest_collection_finish(session: pytest.Session) -> None:
    """JVMs share an archive of classes where many are to start."""
    if sum(_weight(item) > 0 for item in session.items) < DRIVERS_WORTH_AN_ARCHIVE:
        os.environ.pop(ARCHIVE_HOME, None)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[ARCHIVE_HOME] = tempfile.mkdtemp(prefix="streamlake-classes-")
        config.add_cleanup(partial(shutil.rmtree, os.environ[ARCHIVE_HOME], ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A parallel run keeps together what shares something costly."""
    return lanes.scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What a process of a parallel run could not do is told at the end of the whole run."""
    rings.SKIPPED.update(getattr(node, "workeroutput", {}).get("skipped_rings", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing = missing_iceberg_runtime()
    if missing is not None:
        terminalreporter.write_line(
            f"DESELECTED the tests with the marker iceberg_runtime: {missing}", yellow=True, bold=True
        )
    for ring, reason in sorted(rings.SKIPPED.items()):
        terminalreporter.write_line(f"SKIPPED RING {ring}: {reason}", red=True, bold=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a failed run: nothing that the project promises may go unchecked there."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["skipped_rings"] = dict(rings.SKIPPED)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", ())) if reporter is not None else 0
    if rings.in_ci() and skipped and session.exitstatus == 0:
        reporter.write_line(f"\n{skipped} skipped tests: CI allows none", red=True, bold=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
