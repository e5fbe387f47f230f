"""Many files on S3 are deleted with few requests; what such a request leaves is deleted one by one, reported, or found again."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamlake import clock
from streamlake.catalog.open import create, open_table
from streamlake.errors import StorageError
from streamlake.maintain.deletion import delete_files
from streamlake.maintain.expire import expire_snapshots
from streamlake.maintain.orphans import LEAST_AGE_MS, remove_orphans
from streamlake.read.scan import TableScan
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.object_store import ObjectFileIO
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table
from tests.helpers.object_store import S3Server, s3_server
from tests.helpers.request_proxy import RequestProxy, request_proxy
from tests.helpers.row_deltas import row_delta


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        running.bucket("lake")
        yield running


@pytest.fixture
def proxy(server: S3Server) -> Iterator[RequestProxy]:
    with request_proxy(server.endpoint) as running:
        yield running


def storage(server: S3Server, proxy: RequestProxy) -> dict[str, str]:
    return dataclasses.replace(server, endpoint=proxy.endpoint).properties


def written(server: S3Server, folder: str, count: int, ending: str = "") -> list[str]:
    names = [f"{folder}/{number}{ending}.parquet" for number in range(count)]
    client = server.client
    for name in names:
        client.put_object(Bucket="lake", Key=name, Body=b"x")
    return [f"s3://lake/{name}" for name in names]


def protected(server: S3Server, proxy: RequestProxy, part: str) -> None:
    """Objects with `part` in their keys cannot be deleted: the service says so in its answer for each."""
    plain, client = proxy.pass_on, server.client

    def refusing(
        method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        named = [key.decode() for key in re.findall(rb"<Key>(.*?)</Key>", body)]
        keys = [key for key in named if method == "POST" and part in key]
        had = {key: client.get_object(Bucket="lake", Key=key)["Body"].read() for key in keys}
        status, answer_headers, answer = plain(method, path, headers, body)
        for key in had:
            client.put_object(Bucket="lake", Key=key, Body=had[key])
        if had:
            refused = rb"<Error><Key>\1</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
            deleted = rb"<Deleted>\s*<Key>([^<]*" + part.encode() + rb"[^<]*)</Key>.*?</Deleted>"
            answer = re.sub(deleted, refused, answer, flags=re.DOTALL)
        return status, answer_headers, answer

    proxy.pass_on = refusing  # type: ignore[method-assign]


def test_a_request_deletes_many(
    server: S3Server, proxy: RequestProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlake.maintain.deletion._BATCH", 50)
    paths = written(server, "many", 120, " ä+&%2F")
    deleted = delete_files(
        ObjectFileIO("s3", storage(server, proxy)), [*paths, "s3://lake/many/none"], "files"
    )
    assert (deleted.files, deleted.failed) == (121, 0)
    assert server.keys("lake", "many/") == []
    assert Counter(method for method, _ in proxy.seen) == {"POST": 3}


@pytest.mark.parametrize("fault", ["500", "drop-before", "drop-after", "500-after"])
def test_a_request_that_fails_is_made_good(fault: str, server: S3Server, proxy: RequestProxy) -> None:
    paths = written(server, fault, 20)
    proxy.fail(0, fault)
    deleted = delete_files(ObjectFileIO("s3", storage(server, proxy)), paths, "files")
    assert (deleted.files, deleted.failed) == (20, 0)
    assert server.keys("lake", f"{fault}/") == []


def test_what_cannot_be_deleted_is_counted(server: S3Server, proxy: RequestProxy) -> None:
    paths = written(server, "some", 20)
    protected(server, proxy, "1")
    deleted = delete_files(ObjectFileIO("s3", storage(server, proxy)), paths, "files")
    assert (deleted.files, deleted.failed) == (9, 11)
    assert "permission denied" in deleted.error
    assert len(server.keys("lake", "some/")) == 11


def test_an_expiry_that_fails_halfway_is_finished_by_the_removal_of_orphans(
    server: S3Server, proxy: RequestProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = "s3://lake/db/halfway"
    create(location, parse_ddl("id long, category string"), catalog=storage(server, proxy), format_version=3)
    table = open_table(location, storage(server, proxy))
    for first in (0, 10, 20):
        ids = list(range(first, first + 10))
        append(table, pa.table({"id": pa.array(ids, pa.int64()), "category": ["a b"] * 10}))
    row_delta(table, {1, 11, 21}).commit()
    row_delta(table, {2, 12, *range(20, 30)}).commit()
    plain = proxy.pass_on
    protected(server, proxy, "/data/")
    proxy.seen.clear()
    with pytest.raises(
        StorageError, match=r"4 snapshots expired, but [0-9]+ of [0-9]+ files could not be deleted"
    ):
        expire_snapshots(table, older_than_ms=clock.now_ms() + 1, retain_last=1)
    proxy.pass_on = plain  # type: ignore[method-assign]
    left = len(server.keys("lake", "db/halfway/data/"))
    check_table(open_table(location, server.properties), files_exist=True)
    later = clock.now_ms() + 2 * LEAST_AGE_MS
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    removed = remove_orphans(table, older_than_ms=later - LEAST_AGE_MS)
    assert removed.deleted.files > 0
    assert len(server.keys("lake", "db/halfway/data/")) == left - removed.deleted.files == 3
    table = open_table(location, server.properties)
    check_table(table, files_exist=True)
    assert sorted(TableScan(table).to_arrow()["id"].to_pylist()) == [
        n for n in range(20) if n not in (1, 2, 11, 12)
    ]
