"""The registry's client: caches, references, credentials, retries, and what it says when there is no schema."""

from __future__ import annotations

import json
import ssl
import subprocess

import pytest

from streamlake import clock
from streamlake.decode.avro.avro_types import schema_from_avro
from streamlake.decode.registry import schema_registry as schema_registry_module
from streamlake.decode.registry.registry_options import RegistryOptions
from streamlake.decode.registry.schema_registry import SchemaRegistry, UnknownSchemaError, schema_registry
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, SourceError
from tests.helpers.schema_registry import RegistryServer

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def server():
    with RegistryServer().running() as running:
        yield running


@pytest.fixture
def waits(monkeypatch):
    found = []
    monkeypatch.setattr(clock, "sleep", found.append)
    return found


def registry(server, **options):
    given = {"schema-registry.url": server.url}
    given.update({f"schema-registry.{name.replace('_', '-')}": value for name, value in options.items()})
    return SchemaRegistry(RegistryOptions.parse(given))


def test_each_schema_is_asked_for_once_and_the_latest_every_time(server):
    client = registry(server)
    number = server.register("t-value", SCHEMA)
    assert json.loads(client.by_id(number).text) == SCHEMA
    assert client.by_id(number) is client.by_id(number)
    assert server.asked == ["/schemas/ids/1"]
    assert json.loads(client.latest("t-value").text) == SCHEMA
    changed = {**SCHEMA, "name": "S"}
    server.register("t-value", changed)
    assert json.loads(client.latest("t-value").text) == changed
    assert client.subject_of("t") == "t-value"


def test_one_client_per_options_and_process(server):
    options = RegistryOptions.parse({"schema-registry.url": server.url})
    again = RegistryOptions.parse({"schema-registry.url": server.url + "/"})
    assert schema_registry(options) is schema_registry(again)


def test_references_come_along_those_that_are_needed_first(server):
    server.register("c", {"type": "enum", "name": "n.C", "symbols": ["X"]})
    server.register(
        "b",
        {"type": "record", "name": "n.B", "fields": [{"name": "c", "type": "n.C"}]},
        references=[{"name": "n.C", "subject": "c", "version": 1}],
    )
    fields = [{"name": "b", "type": "n.B"}, {"name": "c", "type": "n.C"}]
    number = server.register(
        "a/value",
        {"type": "record", "name": "n.A", "fields": fields},
        references=[
            {"name": "n.B", "subject": "b", "version": 1},
            {"name": "n.C", "subject": "c", "version": 1},
        ],
    )
    found = registry(server).by_id(number)
    assert [name for name, _ in found.references] == ["n.C", "n.B"]
    assert [str(part.type) for part in schema_from_avro(found.avro, "a").fields] == [
        "struct<3: c: required string>",
        "string",
    ]
    assert registry(server).latest("a/value").avro == found.avro


def test_credentials_are_sent_and_never_shown(server):
    server.register("t-value", SCHEMA)
    registry(server, basic_auth="me:pass:word").latest("t-value")
    registry(server, bearer_token="abc").latest("t-value")
    client = registry(server, url=f"http://us%40er:secret@{server.address}")
    client.latest("t-value")
    assert [found["Authorization"] for found in server.headers] == [
        "Basic bWU6cGFzczp3b3Jk",
        "Bearer abc",
        "Basic dXNAZXI6c2VjcmV0",
    ]
    server.refuse = [(401, {"error_code": 401, "message": "Unauthorized"})]
    with pytest.raises(SourceError) as raised:
        client.latest("t-value")
    assert "refused to give it: HTTP 401 Unauthorized" in str(raised.value)
    assert server.url in str(raised.value)
    assert "secret" not in str(raised.value) + repr(client._options)


def test_what_passes_is_tried_again_with_longer_and_longer_waits(server, waits):
    number = server.register("t-value", SCHEMA)
    server.refuse = [(503, b"busy"), (429, b""), (500, {"error_code": 50001, "message": "store"})]
    assert json.loads(registry(server).by_id(number).text) == SCHEMA
    assert waits == [0.2, 0.4, 0.8]


def test_a_second_address_answers_for_the_first(server, waits):
    number = server.register("t-value", SCHEMA)
    client = registry(server, url=f"http://127.0.0.1:1,{server.url}")
    assert json.loads(client.by_id(number).text) == SCHEMA
    assert waits == []


def test_a_registry_that_stays_away_is_an_error_of_the_source(waits):
    client = SchemaRegistry(
        RegistryOptions.parse({"schema-registry.url": "http://127.0.0.1:1", "schema-registry.retries": "2"})
    )
    with pytest.raises(SourceError) as raised:
        client.by_id(7)
    assert "the schema 7 of the registry cannot be fetched after 3 attempts: http://127.0.0.1:1: " in str(
        raised.value
    )
    assert len(waits) == 2


def test_an_unknown_id_is_told_from_an_address_that_is_no_registry(server):
    with pytest.raises(
        UnknownSchemaError, match=r"the schema 99 of the registry is not there \(http://127.*Schema not found"
    ):
        registry(server).by_id(99)
    with pytest.raises(SourceError, match="HTTP 404 <html>"):
        registry(server, url=f"{server.url}/nothing/here").by_id(1)
    server.refuse = [(200, b"<html>welcome</html>")]
    with pytest.raises(SourceError, match="does not answer in JSON; is it a schema registry"):
        registry(server).by_id(1)
    server.refuse = [(200, {"hello": 1})]
    with pytest.raises(SourceError, match="answered without a schema"):
        registry(server).by_id(1)


def test_references_that_lead_back_are_refused(server):
    ring = [("a", "b"), ("b", "c"), ("c", "b")]
    for subject, other in ring:
        server.register(subject, SCHEMA, references=[{"name": f"n.{other}", "subject": other, "version": 1}])
    with pytest.raises(
        InvalidOptionError,
        match="the schema 1 of the registry cannot be used: version 1 of b refers to itself",
    ):
        registry(server).by_id(1)
    server.register("alone", SCHEMA, references=[{"name": "n.alone", "subject": "alone", "version": 1}])
    with pytest.raises(InvalidOptionError, match="version 1 of alone refers to itself"):
        registry(server).latest("alone")


def test_references_are_bounded_and_have_one_form(server):
    server.register("s0", SCHEMA)
    for number in range(1, 300):
        server.register(
            f"s{number}",
            SCHEMA,
            references=[{"name": f"n.s{number}", "subject": f"s{number - 1}", "version": 1}],
        )
    assert len(registry(server).by_id(200).references) == 199
    with pytest.raises(InvalidOptionError, match="refers to more than 200 schemas"):
        registry(server).by_id(300)
    for references in ([{"name": "x"}], ["x"], 5):
        server.refuse = [(200, {"schema": "{}", "references": references})]
        with pytest.raises(InvalidOptionError, match="references have an unknown form"):
            registry(server).by_id(1)
    server.refuse = [
        (200, {"schema": "{}", "references": [{"name": "x", "subject": "s", "version": 1}]}),
        (200, []),
    ]
    with pytest.raises(InvalidOptionError, match="version 1 of s has no schema"):
        registry(server).by_id(1)


def test_an_answer_has_a_bound(server, monkeypatch):
    monkeypatch.setattr(schema_registry_module, "_MOST_BYTES", 1 << 20)
    server.refuse = [(200, b'{"schema": "' + b"x" * (1 << 20) + b'"}')]
    with pytest.raises(SourceError, match="answers with more than 1 MiB, which is not a schema"):
        registry(server).by_id(1)
    server.refuse = [(200, b"[" * 200_000)]
    with pytest.raises(SourceError, match="does not answer in JSON"):
        registry(server).by_id(1)
    server.refuse = [(403, b"{" + b'"a":' * 100_000 + b"y" * (1 << 20))]
    with pytest.raises(SourceError, match="HTTP 403") as raised:
        registry(server).by_id(1)
    assert len(str(raised.value)) < 1_000


def test_ids_of_damaged_records_are_not_all_asked_for(server, monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    for _ in range(3):
        server.register("t-value", SCHEMA)
    client = registry(server)
    client.by_id(3)
    for number in range(5_000):
        with pytest.raises(UnknownSchemaError):
            client.by_id(1_000_000 + 7_919 * number)
    assert len(server.asked) == 101
    with pytest.raises(UnknownSchemaError, match=r"was not asked for: 100 ids .* the greatest that is \(3\)"):
        client.by_id(99_999)
    # A schema that was registered meanwhile has an id near the others.
    assert json.loads(client.by_id(server.register("t-value", SCHEMA)).text) == SCHEMA
    now[0] += 61
    asked = len(server.asked)
    with pytest.raises(UnknownSchemaError, match="is not there"):
        client.by_id(99_999)
    assert len(server.asked) == asked + 1


def test_a_redirect_is_followed_unless_it_leaves_tls(server, tmp_path):
    number = server.register("t-value", SCHEMA)
    with RegistryServer(tls_of(tmp_path)).running() as secure:
        options = {"ssl.ca-location": str(tmp_path / "cert.pem"), "basic_auth": "a:b"}
        client = registry(server, url=secure.url, **options)
        secure.register("t-value", SCHEMA)
        secure.refuse = [(302, {"location": f"{secure.url}/schemas/ids/1"})]
        assert json.loads(client.by_id(number).text) == SCHEMA
        secure.refuse = [(302, {"location": f"{server.url}/schemas/ids/1"})]
        with pytest.raises(SourceError, match="redirects from https to http, which is not followed"):
            registry(server, url=secure.url, **options).by_id(number)
    assert server.asked == []
    server.refuse = [(302, {"location": f"{server.url}/schemas/ids/1"})]
    assert json.loads(registry(server, basic_auth="a:b").by_id(1).text) == SCHEMA
    assert "Authorization" not in server.headers[-1]


def tls_of(home):
    """A server's TLS with a certificate of its own, which it leaves in `home`/cert.pem."""
    files = ["-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, *name]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "cert.pem", home / "key.pem")
    return context


@pytest.mark.parametrize(
    ("url", "secret", "what"),
    [
        ("http://r:8081", {"basic-auth": "a:b"}, "the password"),
        ("https://s,http://r:8081", {"bearer-token": "abc"}, "the token"),
        ("http://a:b@r:8081", {}, "the password"),
        ("https://r:8081", {"basic-auth": "a:b"}, ""),
        ("http://r:8081", {}, ""),
    ],
)
def test_credentials_without_tls_are_warned_of(url, secret, what, caplog):
    given = {"schema-registry.url": url, **{f"schema-registry.{name}": text for name, text in secret.items()}}
    schema_registry.cache_clear()
    schema_registry(RegistryOptions.parse(given))
    schema_registry(RegistryOptions.parse(given))
    told = [record.getMessage() for record in caplog.records]
    expected = f"{what} of the schema registry is sent to http://r:8081 without TLS, where others can read it; use https"
    assert told == ([expected] if what else [])


def test_another_kind_of_schema_is_refused(server):
    number = server.register("t-value", 'syntax = "proto3";', "PROTOBUF")
    with pytest.raises(
        FeatureUnsupportedError,
        match="the schema 1 of the registry is of the kind PROTOBUF, and the format asks for AVRO",
    ):
        _ = registry(server).by_id(number).avro
    number = server.register("j-value", {"type": "object"}, "JSON")
    with pytest.raises(FeatureUnsupportedError, match="use 'format: confluent-json'"):
        _ = registry(server).by_id(number).avro


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "schema-registry.url is missing"),
        ({"url": "registry:8081"}, "not an address like http"),
        ({"url": "http://h:99999999"}, "not an address like http"),
        ({"url": "http://h", "basic-auth": "me"}, "must look like user:password"),
        ({"url": "http://h", "basic-auth": "a:b", "bearer-token": "c"}, "give either"),
        ({"url": "http://h", "ssl.key-location": "/k"}, "needs schema-registry.ssl.certificate-location"),
        ({"url": "http://h", "retries": "many"}, "whole number of at least 0"),
        ({"url": "http://h", "timeout": "1"}, "did you mean 'schema-registry.timeout-ms'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(options, message):
    with pytest.raises(InvalidOptionError) as raised:
        RegistryOptions.parse({f"schema-registry.{name}": value for name, value in options.items()})
    assert message in str(raised.value)


def test_certificates_that_are_not_there_are_named(tmp_path):
    client = SchemaRegistry(
        RegistryOptions.parse(
            {
                "schema-registry.url": "https://127.0.0.1:1",
                "schema-registry.ssl.ca-location": str(tmp_path / "no.pem"),
            }
        )
    )
    with pytest.raises(
        InvalidOptionError, match=r"schema-registry\.ssl\.\* name cannot be used: No such file"
    ):
        client.by_id(1)
