"""A schema registry in this process: the routes of Confluent's API that a reader needs, on 127.0.0.1."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class RegistryServer:
    """Schemas by id and by subject. `asked` are the paths of all requests; `refuse` makes the next ones fail."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.refuse: list[tuple[int, Any]] = []
        """(status, body) of the next answers, whatever is asked."""
        self._schemas: list[dict[str, Any]] = []
        self._versions: dict[str, list[int]] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                server.headers.append(dict(self.headers))
                if server.refuse:
                    status, answer = server.refuse.pop(0)
                else:
                    status, answer = server.answer([unquote(part) for part in self.path.split("/")[1:]])
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status in (301, 302, 307):
                    self.send_header("Location", answer["location"])
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._http.server_port}"
        self.url = f"{'http' if tls is None else 'https'}://{self.address}"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)

    @contextmanager
    def running(self) -> Iterator[RegistryServer]:
        thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of a new version of `subject`; ids count from 1."""
        found = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if kind != "AVRO":
            found["schemaType"] = kind
        if references:
            found["references"] = references  # type: ignore[assignment]
        self._schemas.append(found)
        self._versions.setdefault(subject, []).append(len(self._schemas))
        return len(self._schemas)

    def answer(self, path: list[str]) -> tuple[int, Any]:
        """(status, body) for a path."""
        if path[:2] == ["schemas", "ids"] and len(path) == 3:
            number = int(path[2])
            if number <= len(self._schemas):
                return 200, self._schemas[number - 1]
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if path[0] == "subjects" and path[2:3] == ["versions"] and len(path) == 4:
            ids = self._versions.get(path[1], [])
            version = len(ids) if path[3] == "latest" else int(path[3])
            if 0 < version <= len(ids):
                number = ids[version - 1]
                return 200, {
                    "subject": path[1],
                    "version": version,
                    "id": number,
                    **self._schemas[number - 1],
                }
            return 404, {"error_code": 40401, "message": f"Subject '{path[1]}' not found."}
        return 404, b"<html>not here</html>"


def framed(schema_id: int, value: bytes) -> bytes:
    """A value in the registry's wire format."""
    return b"\x00" + schema_id.to_bytes(4, "big") + value
