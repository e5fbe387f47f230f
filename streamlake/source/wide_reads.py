"""Kafka's client with larger reads: whole fetches arrive in a few calls instead of one per four kilobytes.

kafka-python reads its sockets 4 KiB at a time, which costs as much as everything else that it does to a fetch of bulk
data. Consumers of this package are given `WideClient` as their client. It builds on names that are private to
kafka-python's versions 3; where they are not as expected, the client is kafka-python's own, unchanged.
"""

from __future__ import annotations

from typing import Any

from kafka.consumer.group import KafkaConsumer
from kafka.errors import KafkaConnectionError
from kafka.net.compat import KafkaNetClient

_READ_BYTES = 256 << 10


class WideClient(KafkaNetClient):  # type: ignore[misc]
    """Connects like its base class, and reads up to 256 KiB at once from connections without TLS (whose records end after
    16 KiB anyway)."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        manager = getattr(self, "_manager", None)
        build = getattr(manager, "_build_transport", None)
        if build is None or getattr(manager, "ssl_enabled", True):
            return

        async def build_wide(*given: Any, **more: Any) -> Any:
            transport = await build(*given, **more)
            if hasattr(transport, "_sock_recv") and hasattr(transport, "_sock"):
                transport._sock_recv = lambda: _read(transport._sock)
            return transport

        manager._build_transport = build_wide  # type: ignore[union-attr]


def client_arguments() -> dict[str, Any]:
    """Keywords of a consumer or admin client that make it read widely."""
    return {"kafka_client": WideClient} if "kafka_client" in KafkaConsumer.DEFAULT_CONFIG else {}


def _read(sock: Any) -> tuple[bytes, Exception | None]:
    """What has arrived on a socket that does not block, and what went wrong."""
    parts: list[bytes] = []
    problem: Exception | None = None
    while True:
        try:
            data = sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            break
        except OSError as error:
            problem = KafkaConnectionError(error)
            break
        if not data:
            problem = KafkaConnectionError("socket disconnected")
            break
        parts.append(data)
    return (parts[0] if len(parts) == 1 else b"".join(parts)), problem
