"""Apache Flink as a peer: a local environment in one JVM, driven from Python, with Iceberg's Flink runtime on it.

The JVM is py4j's gateway server with Flink's jars on its class path, so no compiler is needed. It listens on 127.0.0.1
only and ends with the object that started it, or with this process.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from tests.helpers.jars import Artifact, Part, jars, pyspark_jars
from tests.helpers.jvm import java_program
from tests.helpers.processes import kill_group, tail, wait_until
from tests.helpers.rings import PartUnavailableError

FLINK_VERSION = "2.1.1"
FLINK = Part(
    f"flink-{FLINK_VERSION}-iceberg-1.11.0",
    (
        *(
            Artifact("org.apache.flink", name, FLINK_VERSION)
            for name in (
                "flink-streaming-java",
                "flink-clients",
                "flink-connector-files",
                "flink-table-api-java-bridge",
                "flink-table-planner-loader",
                "flink-table-runtime",
                "flink-json",
            )
        ),
        Artifact("org.apache.iceberg", "iceberg-flink-runtime-2.1", "1.11.0", transitive=False),
        Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    50,
)
CATALOG = "lake"
"""The Hadoop catalog that every FlinkEngine has; its warehouse is `home`/lake."""

_SETTINGS = {
    "jobmanager.bind-host": "127.0.0.1",
    "jobmanager.rpc.address": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "execution.runtime-mode": "streaming",
    "table.exec.sink.upsert-materialize": "NONE",
    "table.local-time-zone": "UTC",
    "restart-strategy.type": "none",
    "taskmanager.memory.network.min": "64mb",
    "taskmanager.memory.network.max": "64mb",
    "taskmanager.memory.managed.size": "64mb",
}
_OPENED = ("java.util", "java.lang", "java.lang.invoke", "java.nio", "java.time", "java.net", "sun.nio.ch")


@dataclass(frozen=True)
class Upsert:
    """A query whose changes go to `lake.db.{table}`. `key` is for tables without identifier fields."""

    table: str
    query: str
    key: tuple[str, ...] = ()


class FlinkEngine:
    """A running Flink with the catalog `lake`. Jobs run in it one after the other.

    `home` gets the warehouse, the temporary files and the log. `settings` are Flink's own, on top of those above.
    `jvm_options` name the collector, too.
    """

    def __init__(
        self,
        home: Path,
        parallelism: int = 2,
        memory: str = "1g",
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = ("-XX:+UseParallelGC",),
    ) -> None:
        self.home = home
        self.log = home / "flink.log"
        self._parallelism = parallelism
        self._memory = memory
        self._settings = dict(settings or {})
        self._jvm_options = list(jvm_options)
        self._gateway: JavaGateway | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: Any = None
        self._tables: Any = None

    @property
    def warehouse(self) -> Path:
        """Directory of the catalog."""
        return self.home / CATALOG

    @property
    def jvm(self) -> Any:
        """Java classes by name, as py4j shows them."""
        assert self._gateway is not None, "start the engine first"
        return self._gateway.jvm

    def start(self) -> None:
        """Start the JVM and the environment. Raises PartUnavailableError with the reason."""
        found = [*jars(FLINK), *pyspark_jars("hadoop-client-api"), *pyspark_jars("hadoop-client-runtime")]
        for folder in ("tmp", CATALOG):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        options = [f"-Xmx{self._memory}", *self._jvm_options, "-Duser.timezone=UTC"]
        options += [f"-Djava.io.tmpdir={self.home / 'tmp'}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        command = [
            java_program(),
            *options,
            "-cp",
            os.pathsep.join(map(str, [*pyspark_jars("py4j"), *found])),
        ]
        command += ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        answer = self.home / "gateway"
        with open(answer, "wb") as out, open(self.log, "ab") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
            )
        try:
            # The gateway's port and its token, a line each.
            wait_until(lambda: answer.read_text().count("\n") >= 2, 60, "the gateway of Flink's JVM")
            port, token = answer.read_text().split()[:2]
            parameters = GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
            self._gateway = JavaGateway(gateway_parameters=parameters)
            self._open()
        except (Py4JError, TimeoutError) as error:
            self.stop()
            raise PartUnavailableError(f"Flink did not start: {error}\n{tail(self.log)}") from error

    def stop(self) -> None:
        """End the JVM."""
        if self._gateway is not None:
            # Not `close`: after that, every Java object that Python collects would ask for a new connection.
            self._gateway.shutdown()
            self._gateway = None
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            kill_group(self._process)
            self._process = None

    def __enter__(self) -> FlinkEngine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def sql(self, statement: str) -> None:
        """Run one statement and wait until its job has ended."""
        getattr(self._tables.executeSql(statement), "await")()

    def upsert_all(self, writes: Iterable[Upsert]) -> None:
        """Run all of `writes` as one job and wait until it has ended: one snapshot for each table."""
        flink, tables = self.jvm.org.apache.iceberg.flink, self._tables
        statements = tables.createStatementSet()
        for write in writes:
            if not write.key:
                statements.addInsertSql(f"INSERT INTO {CATALOG}.db.{write.table} {write.query}")
                continue
            rows = tables.sqlQuery(write.query)
            sink = flink.sink.FlinkSink.forRow(tables.toChangelogStream(rows), rows.getResolvedSchema())
            loader = flink.TableLoader.fromHadoopTable(f"file://{self.location(write.table)}")
            sink.tableLoader(loader).equalityFieldColumns(list(write.key)).append()
        statements.attachAsDataStream()
        self._environment.execute()

    def create_table(
        self, name: str, schema: object, spec: object, properties: Mapping[str, str] | None = None
    ) -> Path:
        """Create `lake.db.{name}` from JSON values of a schema and a partition spec; its location.

        Java makes the table, of any transform, which Flink's SQL cannot name. Field ids are assigned anew.
        """
        iceberg = self.jvm.org.apache.iceberg
        columns = iceberg.SchemaParser.fromJson(json.dumps(schema))
        partitions = iceberg.PartitionSpecParser.fromJson(columns, json.dumps(spec))
        catalog = iceberg.hadoop.HadoopCatalog(
            self.jvm.org.apache.hadoop.conf.Configuration(), f"file://{self.warehouse}"
        )
        identifier = iceberg.catalog.TableIdentifier.parse(f"db.{name}")
        builder = catalog.buildTable(identifier, columns).withPartitionSpec(partitions)
        builder.withProperties(dict(properties or {})).create()
        return self.location(name)

    def location(self, name: str) -> Path:
        """Where the table `lake.db.{name}` is."""
        return self.warehouse / "db" / name

    def checkpoint_every(self, seconds: float) -> None:
        """The jobs that follow take a checkpoint that often, each one snapshot; without, only one when they end."""
        self._environment.enableCheckpointing(round(seconds * 1000))

    def _open(self) -> None:
        jvm = self.jvm
        settings = {**_SETTINGS, "io.tmp.dirs": str(self.home / "tmp"), **self._settings}
        configuration = jvm.org.apache.flink.configuration.Configuration.fromMap(settings)
        streaming = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
        self._environment = streaming.createLocalEnvironment(self._parallelism, configuration)
        bridge = jvm.org.apache.flink.table.api.bridge.java
        self._tables = bridge.StreamTableEnvironment.create(self._environment)
        self.sql(
            f"CREATE CATALOG {CATALOG} WITH ('type'='iceberg', 'catalog-type'='hadoop', 'cache-enabled'='false', "
            f"'warehouse'='file://{self.warehouse}')"
        )
        self.sql(f"CREATE DATABASE IF NOT EXISTS {CATALOG}.db")
