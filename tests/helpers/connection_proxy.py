"""A proxy in front of a TCP server whose clients ask and wait for the answer: counts the requests, and breaks the connection at
a chosen one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from select import select

FAULTS = ("drop-before", "drop-after", "late")
"""The connection breaks before the server has the request, or before the client has the answer. `late`: it breaks at once, and the
server acts a moment later."""
LATE_SECONDS = 0.3
_IDLE_SECONDS = 0.02
_CHUNK = 1 << 16


@dataclass
class ConnectionProxy:
    """Passes bytes on to `target` (port on 127.0.0.1). `requests` counts those since the last `fail`."""

    target: int
    port: int = 0
    requests: int = 0
    fault: str = ""
    fails_at: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, number: int, fault: str) -> None:
        """Let the request with this number, from now on, have the fault; once."""
        with self._lock:
            self.requests, self.fails_at, self.fault = 0, number, fault

    def arrived(self) -> str:
        """Count a request; its fault, "" for none."""
        with self._lock:
            self.requests += 1
            if self.requests - 1 != self.fails_at:
                return ""
            self.fails_at = -1
            return self.fault

    def serve(self, client: socket.socket) -> None:
        """One connection, until one side closes it or it is broken."""
        with (
            client,
            socket.create_connection(("127.0.0.1", self.target)) as server,
            contextlib.suppress(OSError),
        ):
            is_asking = False
            while True:
                for ready in select([client, server], [], [])[0]:
                    data = ready.recv(_CHUNK)
                    if not data:
                        return
                    if ready is server:
                        is_asking = False
                        client.sendall(data)
                        continue
                    fault = "" if is_asking else self.arrived()
                    is_asking = True
                    if fault:
                        return self._broken(fault, client, server, data)
                    server.sendall(data)

    def _broken(self, fault: str, client: socket.socket, server: socket.socket, data: bytes) -> None:
        while select([client], [], [], _IDLE_SECONDS)[0]:
            more = client.recv(_CHUNK)
            if not more:
                break
            data += more
        if fault != "drop-after":
            client.close()
        if fault == "late":
            time.sleep(LATE_SECONDS)
        if fault != "drop-before":
            server.sendall(data)
            server.recv(_CHUNK)


@contextlib.contextmanager
def connection_proxy(target: int) -> Iterator[ConnectionProxy]:
    """A proxy for the server at this port, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = ConnectionProxy(target, listening.getsockname()[1])

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)
