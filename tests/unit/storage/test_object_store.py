"""ObjectFileIO on an S3 server: files, conditional puts, streams, errors, forks; and the names of settings."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlake.errors import (
    FeatureUnsupportedError,
    InvalidOptionError,
    MissingFileError,
    StorageError,
)
from streamlake.storage import conditional_put, object_clients
from streamlake.storage.conditional_put import require_conditional_put
from streamlake.storage.file_io import FileIO, file_io_for
from streamlake.storage.object_settings import store_settings
from streamlake.storage.object_store import ObjectFileIO
from tests.helpers.object_store import S3Server, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        running.bucket("lake")
        yield running


@pytest.fixture
def store(server: S3Server) -> ObjectFileIO:
    made = file_io_for("s3://lake/t", server.properties)
    assert isinstance(made, ObjectFileIO)
    return made


def test_round_trip(store: ObjectFileIO, server: S3Server) -> None:
    path = "s3://lake/round/d=a%2Fb é+ü x/f.bin"
    assert isinstance(store, FileIO)
    assert not store.exists(path)
    store.write_bytes(path, b"hello")
    assert server.keys("lake", "round/") == ["round/d=a%2Fb é+ü x/f.bin"]
    with store.open_input(path) as stream:
        stream.seek(1)
        assert stream.read() == b"ello"
    assert (store.read_bytes(path), store.size(path), store.exists(path)) == (b"hello", 5, True)
    assert [(info.path, info.size) for info in store.list_prefix("s3://lake/round/")] == [(path, 5)]
    store.write_bytes("s3://lake/round2/f", b"")
    assert store.read_bytes("s3://lake/round2/f") == b""
    with store.open_input("s3://lake/round2/f") as stream:
        assert stream.read() == b""
    assert [info.path for info in store.list_prefix("s3://lake/round")] == [path]
    store.delete(path)
    store.delete(path)
    assert not store.exists(path)
    assert list(store.list_prefix("s3://lake/none")) == []


def test_missing_files(store: ObjectFileIO) -> None:
    for action in (store.read_bytes, store.open_input, store.size):
        with pytest.raises(MissingFileError, match="s3://lake/nothing"):
            action("s3://lake/nothing")


def test_of_racing_creates_one_succeeds(store: ObjectFileIO) -> None:
    def create(number: int) -> bool:
        try:
            store.create_exclusive("s3://lake/race/v1.metadata.json", str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(create, range(24)))
    assert won.count(True) == 1
    assert store.read_bytes("s3://lake/race/v1.metadata.json") == str(won.index(True)).encode()


def test_an_output_is_there_when_it_is_closed(store: ObjectFileIO) -> None:
    path = "s3://lake/outputs/large"
    data = np.random.default_rng(1).bytes(20_000_000)
    with store.open_output(path) as stream:
        for at in range(0, len(data), 3_000_000):
            stream.write(data[at : at + 3_000_000])
        assert stream.tell() == len(data)
        assert not store.exists(path)
    assert store.read_bytes(path) == data

    def fail_in_the_middle() -> None:
        with store.open_output("s3://lake/outputs/half") as stream:
            stream.write(data)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    stream = store.open_output("s3://lake/outputs/given-up")
    stream.write(b"x")
    del stream
    assert [info.path for info in store.list_prefix("s3://lake/outputs")] == [path]


@pytest.mark.parametrize("size", [0, 1, 131_072, 131_073, 9_000_000])
def test_inputs_read_what_was_asked_for(store: ObjectFileIO, size: int) -> None:
    path = f"s3://lake/inputs/{size}"
    data = np.random.default_rng(size).bytes(size)
    store.write_bytes(path, data)
    plain, stream = io.BytesIO(data), store.open_input(path)
    assert stream.seek(0, io.SEEK_END) == size
    stream.seek(0)
    rng = np.random.default_rng(size + 1)
    for _ in range(60):
        if rng.random() < 0.5:
            at = int(rng.integers(0, size + 3))
            assert stream.seek(at) == plain.seek(at)
        count = int(rng.integers(0, max(size, 1) // 3 + 2))
        assert stream.read(count) == plain.read(count)
    buffer = bytearray(10)
    stream.seek(max(size - 4, 0))
    assert stream.readinto(buffer) == min(size, 4)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no position"):
        stream.seek(-1)


def test_arrow_reads_and_writes_them(store: ObjectFileIO) -> None:
    table = pa.table({"n": np.arange(300_000), "s": [f"text {n % 977}" for n in range(300_000)]})
    with store.open_output("s3://lake/arrow/t.parquet") as sink:
        pq.write_table(table, sink, row_group_size=50_000)
    with store.open_input("s3://lake/arrow/t.parquet") as stream:
        assert pq.ParquetFile(stream, pre_buffer=True).read().equals(table)
    with store.open_input("s3://lake/arrow/t.parquet") as stream:
        part = pq.ParquetFile(stream).read_row_group(3, columns=["n"])
        assert part.column("n").to_pylist() == list(range(150_000, 200_000))


def test_it_pickles_without_its_connection(store: ObjectFileIO) -> None:
    store.write_bytes("s3://lake/pickled", b"x")
    assert pickle.loads(pickle.dumps(store)) == store
    assert "test-secret" not in repr(store)


def test_a_child_that_was_forked_after_use_says_so(store: ObjectFileIO) -> None:
    store.write_bytes("s3://lake/forked", b"x")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            store.read_bytes("s3://lake/forked")
        except StorageError as error:
            os._exit(7 if "was forked from one that had used object storage" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_child_that_was_forked_before_use_is_right() -> None:
    # The daemon of Spark's workers imports this code, and forks workers that use it.
    assert subprocess.run([sys.executable, "-c", _FORK_BEFORE_USE], timeout=200).returncode == 0


_FORK_BEFORE_USE = """
import os, signal, sys
import streamlake.pipeline.spark.worker_daemon
from streamlake.storage.file_io import file_io_for
io = file_io_for("s3://lake/t", {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "a",
    "s3.secret-access-key": "b", "s3.connect-timeout": "0.2"})
child = os.fork()
if child == 0:
    signal.alarm(120)
    from streamlake.storage import object_clients
    object_clients._RETRY["max_retries"] = 0
    try:
        io.read_bytes("s3://lake/f")
    except Exception as error:
        os._exit(0 if "forked" not in str(error) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    ("path", "changed", "message"),
    [
        ("s3://no-such-bucket/f", {}, "there is no bucket 'no-such-bucket'; check its name"),
        ("s3://lake//f", {}, "cannot have empty parts"),
        ("s3://lake/a/../f", {}, "cannot have empty parts"),
        ("s3:///f", {}, "the bucket is missing"),
        ("s3://lake/f", {"s3.endpoint": "http://127.0.0.1:1"}, "s3://lake/f: .*the operation may be retried"),
    ],
)
def test_what_goes_wrong(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, path: str, changed: dict[str, str], message: str
) -> None:
    monkeypatch.setitem(object_clients._RETRY, "max_retries", 0)
    store = file_io_for(path, {**server.properties, **changed})
    for action in (store.read_bytes, store.open_input, lambda each: store.write_bytes(each, b"x")):
        with pytest.raises((StorageError, InvalidOptionError), match=message) as error:
            action(path)
        assert not isinstance(error.value, MissingFileError)


def test_a_store_without_conditional_puts_is_refused(
    store: ObjectFileIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional_put, "_known", set())
    require_conditional_put(store, "s3://lake/t")
    assert conditional_put._known == {"s3://lake"}
    monkeypatch.setattr(conditional_put, "_known", set())
    monkeypatch.setattr(ObjectFileIO, "create_exclusive", ObjectFileIO.write_bytes)
    with pytest.raises(FeatureUnsupportedError, match="s3://lake: this object store does not honour"):
        require_conditional_put(store, "s3://lake/t")
    assert not list(store.list_prefix("s3://lake/t"))


S3 = {
    "s3.endpoint": "http://localhost:9000",
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
    "client.region": "eu-west-1",
    "s3.region": "eu-central-1",
    "s3.connect-timeout": "1.5",
    "write.parquet.compression-codec": "zstd",
}


def test_s3_settings_of_iceberg() -> None:
    found = store_settings("s3", "b", S3)
    assert found.config == {
        "endpoint": "http://localhost:9000",
        "access_key_id": "key",
        "secret_access_key": "secret",
        "session_token": "token",
        "region": "eu-central-1",
        "virtual_hosted_style_request": False,
    }
    assert found.client == {"connect_timeout": timedelta(seconds=1.5), "allow_http": True}
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("given", "config"),
    [
        ({}, {"virtual_hosted_style_request": True}),
        ({"s3.path-style-access": "true"}, {"virtual_hosted_style_request": False}),
        (
            {"s3.endpoint": "https://s3.eu", "s3.force-virtual-addressing": "true"},
            {"virtual_hosted_style_request": True, "endpoint": "https://b.s3.eu"},
        ),
        ({"s3.anonymous": "true"}, {"virtual_hosted_style_request": True, "skip_signature": True}),
        (
            {"s3.sse.type": "kms", "s3.sse.key": "k"},
            {
                "virtual_hosted_style_request": True,
                "server_side_encryption": "aws:kms",
                "sse_kms_key_id": "k",
            },
        ),
    ],
)
def test_more_s3_settings(given: dict[str, str], config: dict[str, Any], monkeypatch: Any) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert store_settings("s3a", "b", given).config == config


@pytest.mark.parametrize(
    ("authority", "given", "config"),
    [
        (
            "c@acc.dfs.core.windows.net",
            {"adls.account-key": "k"},
            {"account_name": "acc", "account_key": "k"},
        ),
        ("c", {"adls.account-name": "acc", "adls.sas-token": "s"}, {"account_name": "acc", "sas_key": "s"}),
        (
            "c@acc.dfs.core.windows.net",
            {"adls.sas-token.acc.dfs.core.windows.net": "s"},
            {"account_name": "acc", "sas_key": "s"},
        ),
        (
            "c",
            {"adls.connection-string": "AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:1/a"},
            {"account_name": "a", "account_key": "k==", "endpoint": "http://127.0.0.1:1/a"},
        ),
    ],
)
def test_azure_settings(authority: str, given: dict[str, str], config: dict[str, str]) -> None:
    found = store_settings("abfss", authority, given)
    assert (found.bucket, found.config) == ("c", config)


def test_google_settings() -> None:
    found = store_settings("gs", "b", {"gcs.oauth2.token": "t", "gcs.service.host": "http://127.0.0.1:1"})
    assert found.config == {"bearer_token": "t", "base_url": "http://127.0.0.1:1"}
    assert found.client == {"allow_http": True}


@pytest.mark.parametrize(
    ("scheme", "given", "message"),
    [
        ("s3", {"s3.acces-key-id": "x"}, r"s3\.acces-key-id; did you mean s3\.access-key-id"),
        ("s3", {"s3.bucket-owner-x": "x"}, "known are"),
        ("gs", {"gcs.oauth.token": "x"}, r"did you mean gcs\.oauth2\.token"),
        ("s3", {"s3.path-style-access": "1"}, "true or false"),
        ("s3", {"s3.connect-timeout": "soon"}, "seconds"),
        ("s3", {"s3.sse.type": "own"}, "it can be none, s3, kms"),
        ("s3", {"client.external-id": "x"}, "did you mean client"),
        ("s3", {"client.role-session-name": "x"}, "the role is missing"),
        ("abfs", {}, "the storage account is missing"),
        ("gs", {"gcs.oauth2.token-expires-at": "x"}, "milliseconds"),
    ],
)
def test_wrong_settings_are_errors(
    scheme: str, given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(InvalidOptionError, match=message):
        store_settings(scheme, "b", given)


def test_remote_signing_is_refused() -> None:
    with pytest.raises(FeatureUnsupportedError, match="vended-credentials"):
        store_settings("s3", "b", {"s3.remote-signing-enabled": "true"})
