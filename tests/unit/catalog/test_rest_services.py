"""REST catalogs: what a server sends along is used and never an error, and each answer to a commit means what the protocol says."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlake import clock
from streamlake.catalog.open import create, open_table
from streamlake.catalog.service import load_service
from streamlake.catalog.storage_settings import served_settings
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    FeatureUnsupportedError,
    InvalidOptionError,
    StorageError,
    StreamlakeError,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.file_io import file_io_for
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.updates.metadata_changes import with_properties
from tests.helpers.moto_services import AwsServices, aws_services
from tests.helpers.rest_catalog import RestServer
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES, data_file

pytestmark = pytest.mark.filterwarnings("ignore")
VENDED = {"s3.access-key-id": "vended", "s3.secret-access-key": "vended", "s3.session-token": "vended"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    from pyiceberg.catalog import load_catalog

    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    create("db.t", parse_ddl("id long"), properties={**FAST_RETRIES, **FAST_CHECKS}, catalog=sql)
    with RestServer(load_catalog("default", **sql)).running() as running:
        yield running


def rest(server: RestServer, **properties: str) -> dict[str, str]:
    return {
        "type": "rest",
        "uri": server.uri,
        **{key.replace("__", "-"): value for key, value in properties.items()},
    }


def test_a_commit_is_one_load_and_one_post(server: RestServer) -> None:
    table = open_table("db.t", rest(server))
    AppendFiles(table).append_file(data_file(table)).commit()
    server.requests.clear()
    AppendFiles(table).append_file(data_file(table)).commit()
    assert server.requests == ["GET namespaces/db/tables/t", "POST namespaces/db/tables/t"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (409, CommitConflictError),
        (400, StorageError),
        (403, StorageError),
        (500, CommitStateUnknownError),
        (502, CommitStateUnknownError),
        (503, CommitStateUnknownError),
        (504, CommitStateUnknownError),
    ],
)
def test_what_each_answer_means(server: RestServer, status: int, expected: type[StreamlakeError]) -> None:
    operations = open_table("db.t", rest(server)).operations
    base = operations.refresh()
    server.answer_next = status
    if status == 409:
        server.answer_next = None
        open_again = open_table("db.t", rest(server))
        AppendFiles(open_again).append_file(data_file(open_again)).commit()
    with pytest.raises(expected):
        operations.commit(base, with_properties(base, {"p": "1"}))


@pytest.mark.parametrize(
    "message",
    [
        "Cannot add snapshot with sequence number 5 older than last sequence number 5",
        "Cannot add a snapshot, first-row-id is behind table next-row-id: 3 < 6",
    ],
)
def test_a_snapshot_that_comes_after_one_of_another_branch_is_made_again(
    server: RestServer, message: str
) -> None:
    table = open_table("db.t", rest(server))
    server.answer_next, server.message = 400, message
    AppendFiles(table).append_file(data_file(table)).commit()
    assert len(open_table("db.t", rest(server)).snapshots) == 1


def test_of_two_writers_that_create_a_branch_of_an_empty_table_none_is_lost(
    server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is there between the last look and the commit: only the server can notice it."""
    table, other = (open_table("db.t", rest(server)) for _ in range(2))
    client = load_service(rest(server)).client  # type: ignore[union-attr]
    send = client.commit_table

    def other_first(*arguments: Any) -> Any:
        monkeypatch.undo()
        AppendFiles(other, branch="audit").append_file(data_file(other)).commit()
        return send(*arguments)

    monkeypatch.setattr(client, "commit_table", other_first)
    AppendFiles(table, branch="audit").append_file(data_file(table)).commit()
    metadata = open_table("db.t", rest(server)).metadata
    assert len(list(metadata.ancestors(metadata.refs["audit"].snapshot_id))) == 2


def test_a_token_that_expired_is_asked_for_again(server: RestServer) -> None:
    server.secret = "s3cret"
    operations = open_table("db.t", rest(server, credential="me:s3cret")).operations
    base = operations.refresh()
    server.token = "another one"
    committed = operations.commit(base, with_properties(base, {"p": "1"}))
    assert committed.properties["p"] == "1"
    assert b"s3cret" not in pickle.dumps(operations.io)
    with pytest.raises(InvalidOptionError, match="invalid_client"):
        open_table("db.t", rest(server, credential="me:wrong"))


def test_what_a_server_sends_is_used_or_ignored_and_what_a_user_wrote_has_to_be_right(
    server: RestServer,
) -> None:
    sent = {
        **VENDED,
        "s3.session-token-expires-at-ms": "1",
        "s3.future-setting": "x",
        "client.region": "eu-central-1",
    }
    settings, expires = served_settings({**sent, "token": "t", "credential": "c", "uri": "u"}, {}, "lake")
    assert (settings, expires) == ({**VENDED, "client.region": "eu-central-1"}, 1)
    mine, _ = served_settings({"s3.acess-key-id": "x"}, {"s3.acess-key-id": "x"}, "lake")
    with pytest.raises(InvalidOptionError, match=r"did you mean s3\.access-key-id"):
        file_io_for("s3://lake/x", mine).exists("s3://lake/x")
    server.config, server.defaults = sent, {"s3.another-future-setting": "y", "s3.region": "eu-north-1"}
    assert open_table("db.t", rest(server)).schema.column_names == ["id"]


def test_remote_signing_is_refused_with_the_ways_out(server: RestServer) -> None:
    server.config = {"s3.remote-signing-enabled": "true", "s3.signer.uri": "http://127.0.0.1:1/"}
    with pytest.raises(FeatureUnsupportedError, match="have it vend credentials"):
        open_table("db.t", rest(server))
    keys = {"s3.access-key-id": "mine", "s3.secret-access-key": "mine"}
    open_table("db.t", {**rest(server), **keys})


def test_the_credentials_of_the_longest_prefix_are_used_and_renewed_in_time(
    aws: AwsServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog import load_catalog

    storage = {**aws.s3, "s3.region": "us-east-1"}
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://lake/wh", **storage}
    _bucket(aws)
    create("db.t", parse_ddl("id long"), catalog=sql)
    now = [clock.now_ms()]
    monkeypatch.setattr(clock, "now_ms", lambda: now[0])

    def vend(number: int, life_s: int) -> None:
        keys = {"s3.access-key-id": f"vended-{number}", "s3.secret-access-key": "x"}
        expiry = {"s3.session-token-expires-at-ms": str(now[0] + life_s * 1000)}
        server.credentials = [
            {"prefix": "s3://lake/wh", "config": {**keys, **expiry}},
            {"prefix": "s3://lake", "config": {"s3.access-key-id": "other", "s3.secret-access-key": "x"}},
        ]

    with RestServer(load_catalog("default", **sql)).running() as server:
        server.config = {"s3.endpoint": aws.endpoint, "s3.region": "us-east-1"}
        vend(1, 30)
        table = open_table("db.t", rest(server))
        assert _key(table.io) == "vended-1"
        metadata = table.metadata
        vend(2, 30)
        now[0] += 14_000
        assert _key(table.io) == "vended-1"
        now[0] += 2_000
        assert _key(table.io) == "vended-2"
        assert table.metadata is metadata, "only a refresh moves a table"
        vend(3, 3600)
        AppendFiles(table).append_file(data_file(table)).commit()
        assert _key(table.io) == "vended-3"
        server.client = None
        now[0] += 3_400_000
        assert _key(table.io) == "vended-3", "still valid, and the service is away"
        now[0] += 300_000
        with pytest.raises(StorageError):
            _ = table.io


def _key(io: Any) -> str:
    return str(io.properties["s3.access-key-id"])


def _bucket(aws: AwsServices) -> None:
    import boto3

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=aws.endpoint, **keys).create_bucket(Bucket="lake")


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServices]:
    with aws_services() as services:
        yield services
