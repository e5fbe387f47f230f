"""A real Kafka Connect for tests: one standalone worker on 127.0.0.1 with one of Debezium's connectors."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.jars import DEBEZIUM_POSTGRES, KAFKA_CONNECT, Part, jars
from tests.helpers.java_server import JavaServer, on_class_path
from tests.helpers.postgres import PostgresServer
from tests.helpers.processes import free_ports, wait_until

_PROPERTIES = """\
bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
plugin.path={plugins}
plugin.discovery=only_scan
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter.schemas.enable=false
offset.storage.file.filename={offsets}
offset.flush.interval.ms=500
"""


class KafkaConnect:
    """A running worker with the connector `plugin`, which writes to the broker at `bootstrap_servers`."""

    def __init__(self, home: Path, bootstrap_servers: str, plugin: Part = DEBEZIUM_POSTGRES) -> None:
        self._plugin = plugin
        self._home = home
        self._bootstrap_servers = bootstrap_servers
        self._server = JavaServer("Kafka Connect", home, home / "connect.log")
        (self._port,) = free_ports(1)

    def __enter__(self) -> KafkaConnect:
        plugin = jars(self._plugin)[0].parent
        plugins = self._home / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "debezium").symlink_to(plugin)
        worker = self._home / "worker.properties"
        worker.write_text(
            _PROPERTIES.format(
                bootstrap=self._bootstrap_servers,
                port=self._port,
                plugins=plugins,
                offsets=self._home / "offsets",
            )
        )
        program = "org.apache.kafka.connect.cli.ConnectStandalone"
        self._server.start([*on_class_path(KAFKA_CONNECT), program, str(worker)], self._is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @contextlib.contextmanager
    def connector(
        self, server: PostgresServer, database: str, name: str, *, partitions: int = 1, **options: str
    ) -> Iterator[None]:
        """Debezium follows `database` into the topics `name.schema.table`; from the start on it misses nothing.

        `options` are the connector's, with underscores for dots. Rows that are there already come as snapshot rows.
        Afterwards the replication slot is gone, and the database may be dropped.
        """
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "postgres",
            "database.password": "none",
            "database.dbname": database,
            "topic.prefix": name,
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "all_tables",
            "skipped.operations": "none",
            "slot.drop.on.stop": "true",
            "poll.interval.ms": "20",
            "tasks.max": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": str(partitions),
            **{option.replace("_", "."): value for option, value in options.items()},
        }
        slot = "select active from pg_replication_slots where slot_name = %s"
        with server.connect() as asking:

            def is_active() -> bool:
                self.check(name)
                return asking.execute(slot, (name,)).fetchone() == (True,)

            def is_gone() -> bool:
                return asking.execute(slot, (name,)).fetchone() is None

            self._ask(f"/connectors/{name}/config", "PUT", config)
            try:
                wait_until(is_active, 30, f"the replication slot of connector {name}")
                yield
            finally:
                self._ask(f"/connectors/{name}", "DELETE")
                wait_until(is_gone, 30, f"the end of the replication slot of connector {name}")

    @contextlib.contextmanager
    def mariadb_connector(self, port: int, database: str, name: str, **options: str) -> Iterator[None]:
        """Debezium follows `database` of the MariaDB at `port` into the topics `name.database.table`."""
        config = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(port),
            "database.user": "streamlake",
            "database.password": "none",
            "database.server.id": "5401",
            "database.include.list": database,
            "topic.prefix": name,
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self._home / f"{name}.history"),
            "skipped.operations": "none",
            "poll.interval.ms": "20",
            "tasks.max": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            **{option.replace("_", "."): value for option, value in options.items()},
        }

        self._ask(f"/connectors/{name}/config", "PUT", config)
        try:
            yield
        finally:
            self._ask(f"/connectors/{name}", "DELETE")

    def restart(self, name: str) -> None:
        """Stop a connector and its task, and start them again from the offsets that are kept."""
        self._ask(f"/connectors/{name}/restart?includeTasks=true", "POST")

    def check(self, name: str) -> None:
        """Raise AssertionError with the reason when the connector's task has failed."""
        for task in self._ask(f"/connectors/{name}/status")["tasks"]:
            assert task["state"] != "FAILED", f"connector {name} has failed: {task.get('trace')}"

    def _ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(text) if text else None

    def _is_ready(self) -> bool:
        try:
            self._ask("/connectors")
        except (OSError, AssertionError):
            return False
        return True
