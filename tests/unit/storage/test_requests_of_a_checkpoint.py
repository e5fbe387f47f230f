"""What a checkpoint asks of an object store: how often, and what it comes to when one of the requests fails."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import StreamlakeError
from streamlake.ids import new_uuid
from streamlake.read.scan import TableScan
from streamlake.storage import object_clients
from tests.helpers.local_stream import LocalStream, Record
from tests.helpers.object_store import S3Server, s3_server
from tests.helpers.request_proxy import FAULTS, RequestProxy, request_proxy

SOURCE = [(number % 4, f"v{number}") for number in range(6)]
LONG = [(number % 7, f"v{number}") for number in range(12)]
LAST = dict(SOURCE)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        running.bucket("lake")
        yield running


@pytest.fixture(scope="module")
def proxy(server: S3Server) -> Iterator[RequestProxy]:
    with request_proxy(server.endpoint) as running:
        yield running


def stream(
    server: S3Server, proxy: RequestProxy, home: Path, mode: str, source: list[Record] = SOURCE
) -> LocalStream:
    name = f"{mode}-{new_uuid()}"
    settings = dataclasses.replace(server, endpoint=proxy.endpoint).properties
    made = LocalStream(home / name, source, mode=mode, location=f"s3://lake/{name}", catalog=settings)
    made.path.mkdir(parents=True)
    return made


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_how_many_there_are(server: S3Server, proxy: RequestProxy, tmp_path: Path, mode: str) -> None:
    made = stream(server, proxy, tmp_path, mode, LONG).start(3)
    proxy.fail(-1, "")
    made.go_on(1)
    files = [
        path
        for method, path in proxy.seen
        if method == "PUT" and ("/data/" in path or path.partition("?")[0].endswith(".run"))
    ]
    assert len(files) == len(set(files)) >= 1
    kinds = Counter(method for method, _ in proxy.seen)
    # One put per file. Then the manifest, the staged checkpoint, the manifest list, the metadata file and the hint, for
    # upserts a manifest of deletes and the state of the key index too; the removal of what the checkpoint before has staged; two looks for versions
    # that others have written.
    assert kinds["PUT"] - len(files) == (5 if mode == "append" else 7)
    assert kinds["DELETE"] + kinds["POST"] == 1
    assert kinds["HEAD"] == 2
    runs = [path for method, path in proxy.seen if method == "GET"]
    assert all(path.endswith(".run") for path in runs)
    assert bool(runs) == (mode == "upsert")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_request_that_fails_loses_and_doubles_nothing(
    server: S3Server,
    proxy: RequestProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    fault: str,
) -> None:
    quick = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2}
    retry = {"max_retries": 2, "retry_timeout": timedelta(seconds=20), "backoff": quick}
    monkeypatch.setattr(object_clients, "_RETRY", retry)
    object_clients._client.cache_clear()
    number, is_hit = 0, True
    while is_hit:
        proxy.fail(-1, "")
        made = stream(server, proxy, tmp_path, mode)
        made.start(1)
        proxy.fail(number, fault)
        with contextlib.suppress(StreamlakeError):
            made.go_on(1)
        is_hit = proxy.fails_at == -1
        # A new driver goes on with what the store holds.
        made.start()
        rows = TableScan(open_table(made.location, server.properties)).to_arrow().to_pydict()
        found = list(zip(rows["id"], rows["v"], strict=True))
        expected = SOURCE if mode == "append" else list(LAST.items())
        assert sorted(found) == sorted(expected), (number, fault, proxy.seen)
        number += 1
    assert number > (8 if mode == "append" else 10)
