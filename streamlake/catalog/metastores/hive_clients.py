"""Connections to a Hive metastore: opened when needed, kept for the next call, one thread at a time each."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from threading import Lock
from typing import Any

_MOST_IDLE = 4
_ANSWERS = (
    "NoSuchObjectException",
    "AlreadyExistsException",
    "InvalidObjectException",
    "InvalidOperationException",
    "MetaException",
    "NoSuchLockException",
)
"""Errors that a metastore answers with: the connection is as good as before."""


class HiveClients:
    """The connections of one metastore. `catalog` is PyIceberg's HiveCatalog, which knows how to open one."""

    def __init__(self, catalog: Any) -> None:
        self._properties = dict(catalog.properties)
        self._open_client = getattr(catalog, "_create_hive_client")  # noqa: B009
        self._idle: list[tuple[Any, Any]] = []
        self._lock = Lock()

    def client(self) -> AbstractContextManager[Any]:
        """A Thrift client that nobody else uses meanwhile."""
        return _Lent(self)

    def take(self) -> tuple[Any, Any]:
        """A connection and its client: an idle one, else a new one."""
        with self._lock:
            holder, client = self._idle.pop() if self._idle else (None, None)
        return self._opened() if holder is None else (holder, client)

    def give_back(self, holder: Any, client: Any, error: BaseException | None) -> None:
        """Keep a connection for the next call, unless it broke."""
        if error is None or type(error).__name__ in _ANSWERS:
            self._keep(holder, client)
        else:
            _close(holder)

    def forget(self) -> None:
        """Close the connections that nobody uses: the metastore may have been restarted."""
        with self._lock:
            idle, self._idle = self._idle, []
        for holder, _ in idle:
            _close(holder)

    def _opened(self) -> tuple[Any, Any]:
        """A connection to the first of the metastore's addresses that answers."""
        addresses = str(self._properties["uri"]).split(",")
        for address in addresses[:-1]:
            with suppress(Exception):
                return self._connected(address)
        return self._connected(addresses[-1])

    def _connected(self, address: str) -> tuple[Any, Any]:
        holder = self._open_client({**self._properties, "uri": address.strip()})
        return holder, holder.__enter__()

    def _keep(self, holder: Any, client: Any) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append((holder, client))
                return
        _close(holder)


class _Lent(AbstractContextManager[Any]):
    """A client for one block. Not a generator: contextlib sets the traceback of what is raised in the block,
    and Thrift's errors are immutable, so that a TypeError would take the place of what the metastore says.
    """

    def __init__(self, clients: HiveClients) -> None:
        self._clients = clients

    def __enter__(self) -> Any:
        self._holder, self._client = self._clients.take()
        return self._client

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._clients.give_back(self._holder, self._client, error)


def _close(holder: Any) -> None:
    with suppress(Exception):
        holder.__exit__(None, None, None)
