"""A proxy in front of an HTTP server: counts the requests, and makes one of them fail in a chosen way."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FAULTS = ("500", "503", "409-before", "drop-before", "drop-after", "500-after", "twice")
"""What happens to a request. `-after`: the server has acted, its answer is lost; `twice`: it is acted on twice."""
_NOT_PASSED_ON = {"transfer-encoding", "connection", "content-length"}


@dataclass
class RequestProxy:
    """Passes requests on to `target` (host:port). `seen` are the requests as (method, path)."""

    target: str
    seen: list[tuple[str, str]] = field(default_factory=list)
    fault: str | None = None
    fails_at: int = -1
    endpoint: str = ""
    refuses: Callable[[Mapping[str, str]], bytes | None] = lambda headers: None
    """The body of an answer 403 to a request with these headers (names in lower case); None: it is passed on."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, number: int, fault: str) -> None:
        """Let the request with this number, from now on, have the fault; once."""
        with self._lock:
            self.seen.clear()
            self.fails_at, self.fault = number, fault

    def arrived(self, method: str, path: str) -> str | None:
        """Count a request; its fault."""
        with self._lock:
            self.seen.append((method, path))
            if len(self.seen) - 1 != self.fails_at:
                return None
            self.fails_at = -1
            return self.fault

    def pass_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's answer."""
        connection = http.client.HTTPConnection(self.target, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


@contextlib.contextmanager
def request_proxy(endpoint: str) -> Iterator[RequestProxy]:
    """A proxy for the server at `endpoint`, until the block ends."""
    proxy = RequestProxy(urlsplit(endpoint).netloc)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON
            }
            fault = proxy.arrived(self.command, self.path)
            refusal = proxy.refuses({name.lower(): value for name, value in headers.items()})
            if refusal is not None:
                self._answer(403, [], refusal)
                return
            if fault == "drop-before":
                self.close_connection = True
                return
            if fault in ("500", "503", "409-before"):
                self._answer(int(fault[:3]), [], b"<Error><Code>Injected</Code></Error>")
                return
            answer = proxy.pass_on(self.command, self.path, headers, body)
            if fault == "twice":
                answer = proxy.pass_on(self.command, self.path, headers, body)
            if fault == "drop-after":
                self.close_connection = True
                return
            if fault == "500-after":
                self._answer(500, [], b"<Error><Code>Injected</Code></Error>")
                return
            self._answer(*answer)

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _NOT_PASSED_ON:
                    self.send_header(name, value)
            length = len(body)
            if self.command == "HEAD":
                length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
