"""Connections to a Hive metastore: opened when needed, kept for the next call, one thread at a time each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

_MOST_IDLE = 4
_ANSWERS = ("NoSuchObjectException", "AlreadyExistsException", "InvalidObjectException", "MetaException")
"""Errors that a metastore answers with: the connection is as good as before."""


class HiveClients:
    """The connections of one metastore. `catalog` is PyIceberg's HiveCatalog, which knows how to open one."""

    def __init__(self, catalog: Any) -> None:
        self._properties = dict(catalog.properties)
        self._open_client = getattr(catalog, "_create_hive_client")  # noqa: B009
        self._idle: list[tuple[Any, Any]] = []
        self._lock = Lock()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A Thrift client that nobody else uses meanwhile."""
        with self._lock:
            holder, client = self._idle.pop() if self._idle else (None, None)
        if holder is None:
            holder, client = self._opened()
        try:
            yield client
        except BaseException as error:
            if type(error).__name__ in _ANSWERS:
                self._keep(holder, client)
            else:
                _close(holder)
            raise
        self._keep(holder, client)

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


def _close(holder: Any) -> None:
    with suppress(Exception):
        holder.__exit__(None, None, None)
