"""Kafka client with larger socket reads: a whole fetch in a few calls, not one per four kilobytes.

kafka-python reads its sockets 4 KiB at a time, which costs as much as everything else that it does for a
fetch of bulk data. Consumers of this package get `WideClient` as their client. It uses private names of
kafka-python's versions 3. Where they are not as expected, the client is kafka-python's own, unchanged, and a
warning says so.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from kafka import __version__ as client_version
from kafka.consumer.group import KafkaConsumer
from kafka.errors import KafkaConnectionError

from streamlake.source.topic_now import TESTED_CLIENTS

try:
    from kafka.net.compat import KafkaNetClient
except ImportError:  # found by `client_arguments`
    KafkaNetClient = None

_LOG = logging.getLogger(__name__)
_READ_BYTES = 256 << 10


class WideClient(KafkaNetClient or object):  # type: ignore[misc]
    """Connects like its base class, and reads up to 256 KiB at once from connections without TLS.

    TLS records end after 16 KiB anyway.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        manager: Any = getattr(self, "_manager", None)
        build = getattr(manager, "_build_transport", None)
        if build is None or not hasattr(manager, "ssl_enabled"):
            _warn("its connections are not made where they were")
            return
        if manager.ssl_enabled:
            return

        async def build_wide(*given: Any, **more: Any) -> Any:
            transport = await build(*given, **more)
            if hasattr(transport, "_sock_recv") and hasattr(transport, "_sock"):
                transport._sock_recv = lambda: _read(transport._sock)
            else:
                _warn("its connections do not read as they did")
            return transport

        manager._build_transport = build_wide


def client_arguments() -> dict[str, Any]:
    """Keywords of a consumer or admin client that make it use larger reads."""
    if KafkaNetClient is None or "kafka_client" not in KafkaConsumer.DEFAULT_CONFIG:
        _warn("it takes no other client")
        return {}
    return {"kafka_client": WideClient}


@cache
def _warn(problem: str) -> None:
    _LOG.warning(
        "kafka-python %s cannot be given larger reads: %s. Records arrive 4 KiB at a time, with the same "
        "result but slower. On the driver and the executors run: python -m pip install '%s'",
        client_version,
        problem,
        TESTED_CLIENTS,
    )


def _read(sock: Any) -> tuple[bytes, Exception | None]:
    """The bytes that have arrived on a non-blocking socket, and the error if there was one."""
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
