"""Token provider for SASL/OAUTHBEARER: from an OAuth server with a client's id and secret, or from a file.

Consumers and admin clients request a token whenever they connect, on the driver and on the executors.
Invariant: a token is used only while it is valid, and nothing that is shown or logged holds it or the secret.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

from streamlake import clock
from streamlake.errors import InvalidOptionError
from streamlake.options import ShownFields

_LOG = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 10.0
_ATTEMPTS = 3
_WAIT_SECONDS = 0.5
_ASKED_AGAIN_SECONDS = 10.0
_MOST_BYTES = 1 << 20
_LIFETIME_SECONDS = 300.0
_USED_SHARE = 0.8
"""The share of a token's lifetime for which it is used, so that it is still valid when the broker checks it.
"""
_IN_THE_OPEN = "the secret for SASL/OAUTHBEARER is sent without TLS, where others can read it; use https"
_lock = threading.Lock()
_kept: dict[OAuthTokens, tuple[str, float, float]] = {}
_problems: dict[OAuthTokens, str] = {}
"""Why the last attempt gave no token: clients report only that there is no connection, not this reason."""


@dataclass(frozen=True, repr=False)
class OAuthTokens(ShownFields, AbstractTokenProvider):  # type: ignore[misc]
    """Requests and caches tokens; two equal providers share their tokens.

    `endpoint` is the address of the OAuth server's token endpoint, for the client credentials grant, or
    file:///PATH of a file that holds the token and is renewed from outside. `more` are SASL extensions.
    """

    endpoint: str
    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    ca_location: str | None = None
    more: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme == "file" and parts.path:
            return
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidOptionError(
                "the Kafka option 'kafka.sasl.oauthbearer.token.endpoint.url' is not an address like "
                "https://login/oauth2/token or file:///run/secrets/token"
            )
        if not self.client_id or not self.client_secret:
            raise InvalidOptionError(
                "SASL/OAUTHBEARER needs kafka.sasl.oauthbearer.client.id and "
                "kafka.sasl.oauthbearer.client.secret"
            )

    def token(self) -> str:
        """The current token, see AbstractTokenProvider.

        Raises SaslAuthenticationFailedError when there is none.
        """
        try:
            token = self._token()
        except SaslAuthenticationFailedError as error:
            _problems[self] = str(error.args[0])
            raise
        _problems.pop(self, None)
        return token

    def _token(self) -> str:
        parts = urlsplit(self.endpoint)
        if parts.scheme == "file":
            return _token_of_file(unquote(parts.path))
        with _lock:
            if self not in _kept and urlsplit(self.endpoint).scheme == "http" and self not in _problems:
                _LOG.warning(_IN_THE_OPEN)
            token, renewed_at, good_until = _kept.get(self, ("", 0.0, 0.0))
            if clock.monotonic() >= renewed_at:
                try:
                    token, lifetime = self._asked()
                except SaslAuthenticationFailedError as error:
                    now = clock.monotonic()
                    if now >= good_until:
                        raise
                    _LOG.warning("%s; the current token is valid for %d s more", error, good_until - now)
                    _kept[self] = token, now + _ASKED_AGAIN_SECONDS, good_until
                else:
                    now = clock.monotonic()
                    _kept[self] = token, now + _USED_SHARE * lifetime, now + lifetime
            return token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions, see AbstractTokenProvider."""
        return dict(self.more)

    def _asked(self) -> tuple[str, float]:
        """A new token, and the seconds that it is valid."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                clock.sleep(_WAIT_SECONDS * attempt)
            try:
                return _token_in(self._answer())
            except HTTPError as error:
                with error:
                    problem = f"HTTP {error.code} {error.reason}"
                if error.code < 500:
                    break
            except (OSError, ValueError, RecursionError) as error:
                problem = str(error.reason if isinstance(error, URLError) else error) or type(error).__name__
        host = urlsplit(self.endpoint).netloc.rpartition("@")[2]
        raise SaslAuthenticationFailedError(
            f"{host} gave no token for SASL/OAUTHBEARER: {problem}; look at the kafka.sasl.oauthbearer.* "
            "options"
        )

    def _answer(self) -> bytes:
        fields = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        pair = f"{quote(self.client_id or '', safe='')}:{quote(self.client_secret or '', safe='')}"
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        }
        request = Request(self.endpoint, urlencode(fields).encode(), headers, method="POST")
        opener = build_opener(
            HTTPSHandler(context=ssl.create_default_context(cafile=self.ca_location)), _NoRedirects()
        )
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return bytes(answer.read(_MOST_BYTES))


def token_problem(client: Mapping[str, Any]) -> str:
    """Why a client with these keywords got no token, as the end of a message; else empty."""
    tokens = client.get("sasl_oauth_token_provider")
    problem = _problems.get(tokens) if isinstance(tokens, OAuthTokens) else None
    return f" ({problem})" if problem else ""


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: the secret goes to the given address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _token_in(answer: bytes) -> tuple[str, float]:
    content = json.loads(answer)
    token = content.get("access_token") if isinstance(content, dict) else None
    if not isinstance(token, str) or not token:
        raise ValueError("the answer has no access_token")
    lifetime = content.get("expires_in")
    return token, float(lifetime) if isinstance(lifetime, int | float) else _LIFETIME_SECONDS


def _token_of_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read(_MOST_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SaslAuthenticationFailedError(
            f"the token for SASL/OAUTHBEARER in {path} cannot be read: {error}"
        ) from error
    if not token:
        raise SaslAuthenticationFailedError(f"{path}, the file of the token for SASL/OAUTHBEARER, is empty")
    return token
