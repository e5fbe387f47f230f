"""SASL/OAUTHBEARER: tokens of a server that answers in this process, and of a file; and a broker that asks for one."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from kafka.errors import SaslAuthenticationFailedError

from streamlake import KafkaSource, clock
from streamlake.errors import InvalidOptionError, SourceError
from streamlake.source import consumers, oauth_tokens
from streamlake.source.cluster import KafkaCluster
from streamlake.source.fetcher import fetch_range
from streamlake.source.oauth_tokens import OAuthTokens
from streamlake.source.offsets import OffsetRange
from tests.helpers.broker import KafkaBroker
from tests.helpers.processes import free_ports


def unsecured_token(name: str) -> str:
    """What a broker without an OAuth server of its own takes: a token that nobody has signed."""
    now = time.time()

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': name, 'iat': now - 5, 'exp': now + 600})}."


class TokenServer:
    """`asked` are (path, fields, Authorization) of the requests; `answers` (status, body) of the next ones."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]], str]] = []
        self.answers: list[tuple[int, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                server.asked.append((self.path, parse_qs(text), self.headers["Authorization"]))
                good = {"access_token": unsecured_token("reader"), "expires_in": 100}
                status, answer = server.answers.pop(0) if server.answers else (200, good)
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/token"

    @contextmanager
    def running(self) -> Iterator[TokenServer]:
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


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer().running() as running:
        yield running


def options(endpoint: str, **more: str) -> dict[str, str]:
    return {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": endpoint,
        "kafka.sasl.oauthbearer.client.id": "me",
        "kafka.sasl.oauthbearer.client.secret": "s3cr:et",
        **more,
    }


def tokens_of(given: dict[str, str]) -> OAuthTokens:
    found = KafkaSource("b:1", "t", options=given).settings.client["sasl_oauth_token_provider"]
    assert isinstance(found, OAuthTokens)
    return found


def test_a_token_is_asked_for_and_kept_while_it_is_good(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    more = {"kafka.sasl.oauthbearer.scope": "a b", "kafka.sasl.oauthbearer.extensions": "pool=x, cluster=y"}
    tokens = tokens_of(options(server.url, **more))
    first = tokens.token()
    assert pickle.loads(pickle.dumps(tokens)).token() == first
    assert tokens.extensions() == {"pool": "x", "cluster": "y"}
    fields = {"grant_type": ["client_credentials"], "scope": ["a b"]}
    basic = base64.b64encode(b"me:s3cr%3Aet").decode()
    assert server.asked == [("/token", fields, f"Basic {basic}")]
    now[0] += 79
    assert tokens.token() == first
    now[0] += 2
    server.answers = [(200, {"access_token": "second"})]
    assert tokens.token() == "second"
    assert "s3cr" not in repr(tokens)


def test_a_token_that_is_good_outlives_a_server_that_gives_no_other(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    tokens = tokens_of(options(server.url, **{"kafka.sasl.oauthbearer.client.id": "patient"}))
    first = tokens.token()
    now[0] += 81
    server.answers = [(503, b"")] * 3
    assert tokens.token() == first
    asked = len(server.asked)
    assert tokens.token() == first
    assert len(server.asked) == asked
    now[0] += 11
    server.answers = [(200, {"access_token": "second"})]
    assert tokens.token() == "second"
    now[0] += 10_000
    server.answers = [(503, b"")] * 3
    with pytest.raises(SaslAuthenticationFailedError):
        tokens.token()


def test_the_line_of_a_java_client_is_understood() -> None:
    given = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "kafka.sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="me" clientSecret="p" scope="s";',
    }
    assert tokens_of(given) == OAuthTokens("https://login/token", "me", "p", "s")


def test_what_passes_is_tried_again_and_what_does_not_is_told(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(clock, "sleep", waits.append)
    server.answers = [(503, b""), (200, b"<html>"), (200, {"access_token": "t"})]
    assert tokens_of(options(server.url)).token() == "t"
    assert len(waits) == 2
    other = {"kafka.sasl.oauthbearer.client.id": "other"}
    for status, problem in ((401, "HTTP 401"), (307, "HTTP 307")):
        server.asked.clear()
        server.answers = [(status, b"")]
        with pytest.raises(SaslAuthenticationFailedError, match=f"gave no token .*{problem}") as raised:
            tokens_of(options(server.url, **other)).token()
        assert [path for path, _, _ in server.asked] == ["/token"]
        assert "s3cr" not in str(raised.value)
    server.answers = [(200, {})] * 3
    with pytest.raises(SaslAuthenticationFailedError, match="the answer has no access_token"):
        tokens_of(options(server.url, **other)).token()


def test_a_token_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    kept = tmp_path / "the token"
    tokens = OAuthTokens(kept.as_uri())
    with pytest.raises(SaslAuthenticationFailedError, match="cannot be read"):
        tokens.token()
    for text in ("one", "two"):
        kept.write_text(f"{text}\n")
        assert tokens.token() == text
    kept.write_text("")
    with pytest.raises(SaslAuthenticationFailedError, match="is empty"):
        tokens.token()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (options("login/token"), "is not an address like https"),
        (
            options("https://login", **{"kafka.sasl.oauthbearer.client.secret": ""}),
            "needs kafka.sasl.oauthbearer.client.id",
        ),
        (options("https://login", **{"kafka.sasl.oauthbearer.method": "default"}), "it can be oidc"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        tokens_of(given)


MORE = """
listeners={{plain}},{{control}},OAUTH://127.0.0.1:{port}
advertised.listeners={{plain}},OAUTH://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OAUTH:SASL_PLAINTEXT
sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config=\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
"""


@pytest.mark.kafka
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_broker_that_asks_for_a_token_is_read(server: TokenServer, tmp_path: Path) -> None:
    oauth_tokens._kept.clear()
    [port] = free_ports(1)
    with KafkaBroker(tmp_path / "broker", more=MORE.format(port=port)) as broker:
        topic = broker.create_topic()
        broker.produce(topic, [b"a", b"b", b"c"])
        given = {**options(server.url), "kafka.security.protocol": "SASL_PLAINTEXT"}
        source = KafkaSource(f"127.0.0.1:{port}", topic, format="raw", options=given)
        with KafkaCluster(source) as cluster:
            assert cluster.latest([(topic, 0)]) == {(topic, 0): 3}
        [batch] = fetch_range(source, OffsetRange(topic, 0, 0, 3))
        assert batch.column("value").to_pylist() == [b"a", b"b", b"c"]
        assert len(server.asked) == 1
        consumers.close_idle_consumers()
        server.answers = [(401, b"")] * 50
        other = {**given, "kafka.sasl.oauthbearer.client.id": "nobody", "kafka.bootstrap.timeout.ms": "4000"}
        unknown = KafkaSource(f"127.0.0.1:{port}", topic, format="raw", options=other)
        told = "gave no token for SASL/OAUTHBEARER: HTTP 401"
        with KafkaCluster(unknown) as cluster, pytest.raises(SourceError, match=told):
            cluster.topics()
        with pytest.raises(SourceError, match=told):
            list(fetch_range(unknown, OffsetRange(topic, 0, 0, 3)))
