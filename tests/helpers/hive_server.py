"""A real Hive metastore for tests, with its database (Derby) in a directory of its own. Needs no Hadoop installation.

This version has no option for the address that it listens on.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from tests.helpers.jars import HIVE_METASTORE, HIVE_METASTORE_EXTRAS, cache_root, jars, locked, pyspark_jars
from tests.helpers.java_server import JavaServer
from tests.helpers.processes import free_ports

_EVENTS = "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
_PROGRAM = "org.apache.hadoop.hive.metastore"
_LOGGING = """appender.c.type=Console
appender.c.name=c
rootLogger.level=warn
rootLogger.appenderRef.c.ref=c
"""


class HiveServer:
    """A running metastore at `uri`, whose databases go below `warehouse`."""

    def __init__(self, home: Path) -> None:
        (self.port,) = free_ports(1)
        self.uri = f"thrift://127.0.0.1:{self.port}"
        self.warehouse = home / "warehouse"
        self._home = home
        self._server = JavaServer("the Hive metastore", home, home / "log")

    def __enter__(self) -> HiveServer:
        """Raises PartUnavailableError when it cannot be fetched or started."""
        self._server.environment["METASTORE_HOME"] = str(_unpacked())
        path = ":".join((str(self._home), f"{_unpacked()}/lib/*", *map(str, _jars())))
        self._write_settings()
        options = [
            "-cp",
            path,
            f"-Dderby.stream.error.file={self._home}/derby.log",
            "-Dderby.system.durability=test",
        ]
        options += [
            f"-Dlog4j.configurationFile={self._home}/log4j2.properties",
            f"-Djava.io.tmpdir={self._home}",
        ]
        self._server.run(
            [*options, f"{_PROGRAM}.tools.MetastoreSchemaTool", "-dbType", "derby", "-initSchema"]
        )
        self._server.start([*options, f"{_PROGRAM}.HiveMetaStore", "-p", str(self.port)], self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def _write_settings(self) -> None:
        settings = {
            "metastore.warehouse.dir": f"file://{self.warehouse}",
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self._home}/derby;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "metastore.thrift.port": str(self.port),
            "metastore.thrift.uris": "",
            # Empty would mean the default, a class that is not there.
            "metastore.task.threads.always": _EVENTS,
            "metastore.task.threads.remote": _EVENTS,
            "metastore.expression.proxy": f"{_PROGRAM}.DefaultPartitionExpressionProxy",
            "metastore.server.min.threads": "2",
            "metastore.server.max.threads": "20",
        }
        lines = (
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in settings.items()
        )
        (self._home / "metastore-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
        (self._home / "log4j2.properties").write_text(_LOGGING)

    def _answers(self) -> bool:
        from pyiceberg.catalog import load_catalog

        try:
            return bool(load_catalog("probe", type="hive", uri=self.uri).list_namespaces())
        except Exception:
            return False


def _jars() -> list[Path]:
    names = ("hadoop-client-api", "hadoop-client-runtime", "commons-io", "javax.servlet-api")
    return [*jars(HIVE_METASTORE_EXTRAS), *(jar for name in names for jar in pyspark_jars(name))]


def _unpacked() -> Path:
    """The directory of the metastore's own jars, unpacked once."""
    (archive,) = jars(HIVE_METASTORE)
    home = cache_root() / f"{HIVE_METASTORE.directory}-unpacked"
    with locked(home):
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=home.parent) as work:
                with tarfile.open(archive) as packed:
                    packed.extractall(work, filter="data")
                (inner,) = Path(work).iterdir()
                shutil.move(inner, home)
    return home
