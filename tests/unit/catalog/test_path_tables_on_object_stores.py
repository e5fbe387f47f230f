"""Tables that are opened by their path on an S3 server: created, written by racing writers, read by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from obstore.exceptions import PermissionDeniedError

import streamlake
from streamlake import clock
from streamlake.catalog import hadoop_operations
from streamlake.catalog.open import create, open_table, service_of
from streamlake.errors import (
    CommitStateUnknownError,
    DataInvalidError,
    InvalidOptionError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.object_store import ObjectFileIO
from tests.helpers.batch_write import append
from tests.helpers.object_store import S3Server, s3_server
from tests.helpers.tables import FAST_CHECKS

SCHEMA = parse_ddl("id long not null, name string")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        running.bucket("lake")
        yield running


def rows(location: str, settings: dict[str, str]) -> list[Any]:
    found = streamlake.load_table(location, catalog=settings).scan().to_arrow()
    return sorted(found.column("id").to_pylist())


def test_created_written_and_read(server: S3Server) -> None:
    settings, location = server.properties, "s3://lake/db/orders"
    table = create(location, SCHEMA, catalog=settings, format_version=3)
    with pytest.raises(TableAlreadyExistsError):
        create(location, SCHEMA, catalog=settings)
    for number in range(3):
        append(table, pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]}))
    assert rows(location, settings) == [0, 1, 2]
    assert open_table(f"{location}/", settings).uuid == table.uuid
    keys = server.keys("lake", "db/orders/")
    assert {key for key in keys if key.endswith(".metadata.json")} == {
        f"db/orders/metadata/v{number}.metadata.json" for number in range(1, 5)
    }
    assert not [key for key in keys if "probe" in key]
    with pytest.raises(TableNotFoundError, match="s3://lake/db/none"):
        open_table("s3://lake/db/none", settings)


def test_of_racing_writers_none_is_lost(server: S3Server) -> None:
    settings, location = server.properties, "s3://lake/db/raced"
    create(location, SCHEMA, catalog=settings, properties={"commit.retry.num-retries": "100"})

    def write(writer: int) -> None:
        for number in range(6):
            row = pa.table({"id": pa.array([writer * 100 + number], pa.int64()), "name": ["x"]})
            append(open_table(location, settings), row)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert rows(location, settings) == sorted(writer * 100 + n for writer in range(4) for n in range(6))


def test_a_put_whose_answer_was_lost_is_no_conflict(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, location = server.properties, "s3://lake/db/lost-answer"
    table = create(location, SCHEMA, catalog=settings)
    plain = ObjectFileIO.create_exclusive

    def twice(self: ObjectFileIO, path: str, data: bytes) -> None:
        plain(self, path, data)
        plain(self, path, data)

    monkeypatch.setattr(hadoop_operations, "require_conditional_put", lambda *_: None)
    monkeypatch.setattr(ObjectFileIO, "create_exclusive", twice)
    append(table, pa.table({"id": pa.array([7], pa.int64()), "name": ["x"]}))
    assert rows(location, settings) == [7]
    assert open_table(location, settings).current_snapshot is not None


def test_a_put_that_arrives_after_everybody_gave_up_is_a_whole_commit(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, location = server.properties, "s3://lake/db/late"
    table = create(location, SCHEMA, catalog=settings, properties=FAST_CHECKS)
    plain = ObjectFileIO.create_exclusive
    on_their_way: list[tuple[str, bytes]] = []

    def unanswered(self: ObjectFileIO, path: str, data: bytes) -> None:
        on_their_way.append((path, data))
        raise StorageError(f"creating {path}: operation timed out")

    monkeypatch.setattr(ObjectFileIO, "create_exclusive", unanswered)
    with pytest.raises(CommitStateUnknownError, match="operation timed out"):
        append(table, pa.table({"id": pa.array([7], pa.int64()), "name": ["x"]}))
    monkeypatch.undo()
    assert rows(location, settings) == []
    [late] = on_their_way
    plain(ObjectFileIO("s3", settings), *late)
    assert rows(location, settings) == [7], "nothing that the late commit names was deleted"


def test_a_refused_put_leaves_nothing_behind(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, location = server.properties, "s3://lake/db/refused"
    table = create(location, SCHEMA, catalog=settings, properties=FAST_CHECKS)
    before = set(server.keys("lake", "db/refused/metadata/"))

    def refused(self: ObjectFileIO, path: str, data: bytes) -> None:
        raise StorageError(f"creating {path}: permission denied") from PermissionDeniedError("403")

    monkeypatch.setattr(ObjectFileIO, "create_exclusive", refused)
    with pytest.raises(StorageError, match="permission denied"):
        append(table, pa.table({"id": pa.array([7], pa.int64()), "name": ["x"]}))
    assert set(server.keys("lake", "db/refused/metadata/")) == before


@pytest.mark.parametrize("seconds", [0, 100], ids=["at once", "later"])
def test_a_table_that_was_dropped_and_created_again_is_not_written_by_who_knew_the_old_one(
    seconds: float, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, location = server.properties, f"s3://lake/db/again-{seconds}"
    old = create(location, SCHEMA, catalog=settings, properties=FAST_CHECKS)
    for key in server.keys("lake", location.removeprefix("s3://lake/")):
        server.client.delete_object(Bucket="lake", Key=key)
    new = create(location, SCHEMA, catalog=settings, properties=FAST_CHECKS)
    then = clock.monotonic() + seconds
    monkeypatch.setattr(clock, "monotonic", lambda: then)
    with pytest.raises((DataInvalidError, TableNotFoundError), match="dropped"):
        append(old, pa.table({"id": pa.array([7], pa.int64()), "name": ["x"]}))
    monkeypatch.undo()
    table = open_table(location, settings)
    assert table.uuid == new.uuid != old.uuid
    assert rows(location, settings) == []


def test_files_in_another_kind_of_storage_are_refused(server: S3Server) -> None:
    io = ObjectFileIO("s3", server.properties)
    server.bucket("other")
    with pytest.raises(InvalidOptionError, match=r"gs://other/f: the table is on s3://"):
        io.write_bytes("gs://other/f", b"x")
    assert server.keys("other") == []
    io.write_bytes("s3a://other/f", b"x")
    assert server.keys("other") == ["f"]


def test_a_missing_bucket_and_wrong_settings(server: S3Server) -> None:
    with pytest.raises(StorageError, match="there is no bucket 'no-bucket'"):
        create("s3://no-bucket/t", SCHEMA, catalog=server.properties)
    with pytest.raises(InvalidOptionError, match=r"s3\.endpont; did you mean s3\.endpoint"):
        open_table("s3://lake/db/orders", {**server.properties, "s3.endpont": "x"})


def test_settings_of_storage_are_no_catalog() -> None:
    assert service_of(None) is None
    assert service_of({"s3.endpoint": "http://h", "client.region": "x"}) is None
    named = {"type": "sql", "s3.endpoint": "http://h"}
    assert service_of(named) == named
    assert service_of("prod") == "prod"
