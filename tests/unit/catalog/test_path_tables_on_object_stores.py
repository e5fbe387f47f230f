"""Tables that are opened by their path on an S3 server: created, written by racing writers, read by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import streamlake
from streamlake.catalog import hadoop_operations
from streamlake.catalog.open import create, open_table, service_of
from streamlake.errors import (
    InvalidOptionError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.object_store import ObjectFileIO
from tests.helpers.batch_write import append
from tests.helpers.object_store import S3Server, s3_server

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
