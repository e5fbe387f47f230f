"""A REST catalog that vends credentials for S3 that expire, and an S3 endpoint that refuses expired ones.

Of the tests' own, because no server at hand vends for another one than AWS's: the catalog is `RestServer`, the storage
moto's S3 behind a proxy that looks at the session token. Time is `now_ms`, so that a test need not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.helpers.object_store import S3Server
from tests.helpers.request_proxy import request_proxy
from tests.helpers.rest_catalog import RestServer

_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_PREFIX = "until-"


class VendingServer(RestServer):
    """Each table comes with credentials that live for `life_ms`."""

    def __init__(self, client: Any, endpoint: str, life_ms: int, now_ms: Callable[[], int]) -> None:
        super().__init__(client)
        self.life_ms = life_ms
        self.vended = 0
        self.refused = 0
        self._endpoint = endpoint
        self._now_ms = now_ms

    def _loaded(self, table: Any) -> Any:
        until = self._now_ms() + self.life_ms
        self.vended += 1
        self.config = {
            "s3.endpoint": self._endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": "vended",
            "s3.secret-access-key": "vended",
            "s3.session-token": f"{_PREFIX}{until}",
            "s3.session-token-expires-at-ms": str(until),
        }
        return super()._loaded(table)

    def refuses(self, headers: Mapping[str, str]) -> bytes | None:
        """What a request with a token that has expired, or without one, is answered."""
        token = headers.get("x-amz-security-token", "")
        if token.startswith(_PREFIX) and int(token.removeprefix(_PREFIX)) > self._now_ms():
            return None
        self.refused += 1
        return _EXPIRED


@contextmanager
def vending_server(
    client: Any, storage: S3Server, life_ms: int, now_ms: Callable[[], int]
) -> Iterator[VendingServer]:
    """A server for the tables of `client`, a PyIceberg catalog on `storage`, until the block ends."""
    with request_proxy(storage.endpoint) as proxy:
        server = VendingServer(client, proxy.endpoint, life_ms, now_ms)
        proxy.refuses = server.refuses
        with server.running():
            yield server
