"""ArrowFileIO: paths with a scheme over a pyarrow file system, and the `s3.*` properties."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyarrow import fs

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, MissingFileError, StorageError
from streamlake.storage import arrow_fs
from streamlake.storage.arrow_fs import ArrowFileIO, s3_arguments
from streamlake.storage.file_io import FileIO, file_io_for


@pytest.fixture
def io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrowFileIO:
    (tmp_path / "bucket").mkdir()
    beneath = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(arrow_fs, "_filesystem", lambda scheme, items: beneath)
    made = file_io_for("s3://bucket/t", {"s3.region": "eu-west-1"})
    assert isinstance(made, ArrowFileIO)
    return made


def test_round_trip(io: ArrowFileIO) -> None:
    path = "s3://bucket/f.bin"
    assert isinstance(io, FileIO)
    assert not io.exists(path)
    io.write_bytes(path, b"hello")
    with io.open_input(path) as stream:
        stream.seek(1)
        assert stream.read() == b"ello"
    assert (io.read_bytes(path), io.size(path), io.exists(path)) == (b"hello", 5, True)
    assert [(info.path, info.size) for info in io.list_prefix("s3://bucket/")] == [(path, 5)]
    io.delete(path)
    io.delete(path)
    assert not io.exists(path)
    assert list(io.list_prefix("s3://bucket/none")) == []


def test_missing_files(io: ArrowFileIO) -> None:
    for action in (io.read_bytes, io.open_input, io.size):
        with pytest.raises(MissingFileError, match="s3://bucket/nothing"):
            action("s3://bucket/nothing")


def test_no_exclusive_create(io: ArrowFileIO) -> None:
    with pytest.raises(FeatureUnsupportedError, match="catalog"):
        io.create_exclusive("s3://bucket/v1.metadata.json", b"")
    assert not io.exists("s3://bucket/v1.metadata.json")


def test_it_pickles_without_its_connection() -> None:
    io = ArrowFileIO("s3", {"s3.endpoint": "http://localhost:1", "s3.secret-access-key": "secret"})
    assert pickle.loads(pickle.dumps(io)) == io
    assert "secret" not in repr(io)


def test_s3_properties_of_iceberg() -> None:
    properties = {
        "s3.endpoint": "http://localhost:9000",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.region": "eu-central-1",
        "s3.path-style-access": "true",
        "s3.connect-timeout": "1.5",
        "write.parquet.compression-codec": "zstd",
    }
    assert s3_arguments(properties) == {
        "endpoint_override": "http://localhost:9000",
        "access_key": "key",
        "secret_key": "secret",
        "session_token": "token",
        "region": "eu-central-1",
        "force_virtual_addressing": False,
        "connect_timeout": 1.5,
    }
    assert s3_arguments({"client.region": "a", "s3.region": "b"}) == {"region": "b"}
    assert s3_arguments({"s3.path-style-access": "false"}) == {"force_virtual_addressing": True}
    assert s3_arguments({"s3.anonymous": "true"}) == {"anonymous": True}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("s3.acces-key-id", "x", r"s3\.access-key-id"),
        ("s3.sse.type", "kms", "known are"),
        ("s3.path-style-access", "1", "true or false"),
        ("s3.connect-timeout", "soon", "seconds"),
    ],
)
def test_wrong_properties_are_errors(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        s3_arguments({key: value})


def test_a_real_s3_file_system_takes_the_arguments() -> None:
    io = ArrowFileIO(
        "s3",
        {
            "s3.endpoint": "http://127.0.0.1:1",
            "s3.access-key-id": "a",
            "s3.secret-access-key": "b",
            "s3.region": "us-east-1",
            "s3.connect-timeout": "0.2",
            "s3.request-timeout": "0.2",
        },
    )
    assert io.filesystem.type_name == "s3"
    with pytest.raises(StorageError, match="s3://bucket/f"):
        io.read_bytes("s3://bucket/f")


@pytest.mark.parametrize("location", ["ftp://h/t", "jdbc:postgresql://h", "memory://x"])
def test_unknown_schemes(location: str) -> None:
    with pytest.raises(FeatureUnsupportedError, match="known are"):
        file_io_for(location)
