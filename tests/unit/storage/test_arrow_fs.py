"""ArrowFileIO: paths with a scheme over a pyarrow file system, and the host that they name."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyarrow import fs

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, MissingFileError
from streamlake.storage import arrow_fs
from streamlake.storage.arrow_fs import ArrowFileIO
from streamlake.storage.file_io import FileIO, file_io_for
from streamlake.storage.webhdfs import WebHdfsFileIO


@pytest.fixture
def io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrowFileIO:
    (tmp_path / "bucket").mkdir()
    beneath = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(arrow_fs, "_filesystem", lambda authority, items: beneath)
    monkeypatch.setattr(arrow_fs, "has_libhdfs", lambda: True)
    made = file_io_for("hdfs://host/bucket/t")
    assert isinstance(made, ArrowFileIO)
    return made


def test_round_trip(io: ArrowFileIO) -> None:
    path = "hdfs://host/bucket/f.bin"
    assert isinstance(io, FileIO)
    assert not io.exists(path)
    io.write_bytes(path, b"hello")
    with io.open_input(path) as stream:
        stream.seek(1)
        assert stream.read() == b"ello"
    assert (io.read_bytes(path), io.size(path), io.exists(path)) == (b"hello", 5, True)
    assert [(info.path, info.size) for info in io.list_prefix("hdfs://host/bucket/")] == [(path, 5)]
    io.delete(path)
    io.delete(path)
    assert not io.exists(path)
    assert list(io.list_prefix("hdfs://host/bucket/none")) == []


def test_missing_files(io: ArrowFileIO) -> None:
    for action in (io.read_bytes, io.open_input, io.size):
        with pytest.raises(MissingFileError, match="hdfs://host/bucket/nothing"):
            action("hdfs://host/bucket/nothing")


def test_creating_exclusively_goes_over_http(io: ArrowFileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FeatureUnsupportedError, match="catalog"):
        ArrowFileIO("viewfs").create_exclusive("viewfs://host/bucket/v1.metadata.json", b"")
    asked: list[tuple[str, bytes]] = []
    monkeypatch.setattr(
        WebHdfsFileIO, "create_exclusive", lambda self, path, data: asked.append((path, data))
    )
    io.create_exclusive("hdfs://host/bucket/v1.metadata.json", b"{}")
    assert asked == [("hdfs://host/bucket/v1.metadata.json", b"{}")]


def test_what_reaches_hdfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    for there in (False, True):
        arrow_fs.has_libhdfs.cache_clear()
        assert isinstance(file_io_for("hdfs://host/t"), ArrowFileIO if there else WebHdfsFileIO)
        (tmp_path / "libhdfs.so").touch()
    over_http = {"hdfs.http-address": "http://host:9870"}
    assert isinstance(file_io_for("hdfs://host/t", over_http), WebHdfsFileIO)
    assert isinstance(file_io_for("viewfs://host/t"), ArrowFileIO)
    arrow_fs.has_libhdfs.cache_clear()
    with pytest.raises(InvalidOptionError, match=r"hdfs\.usr; did you mean hdfs\.user"):
        file_io_for("hdfs://host/t", {"hdfs.usr": "x"})


def test_it_pickles_without_its_connection() -> None:
    io = ArrowFileIO("hdfs", {"hdfs.user": "somebody"})
    assert pickle.loads(pickle.dumps(io)) == io
    assert "somebody" not in repr(io)


@pytest.mark.parametrize(
    ("path", "properties", "expected"),
    [
        ("hdfs://name-node:8020/t", {}, ("name-node", 8020)),
        ("hdfs://cluster/t", {"hdfs.host": "other", "hdfs.port": "1"}, ("cluster", 0)),
        ("hdfs:///t", {"hdfs.host": "name-node", "hdfs.port": "9000"}, ("name-node", 9000)),
        ("hdfs:///t", {}, ("default", 0)),
    ],
)
def test_the_host_is_the_one_of_the_path(
    monkeypatch: pytest.MonkeyPatch, path: str, properties: dict[str, str], expected: tuple[str, int]
) -> None:
    seen: list[tuple[str, int]] = []

    def connected(host: str, port: int, user: str | None) -> fs.FileSystem:
        seen.append((host, port))
        return fs.LocalFileSystem()

    monkeypatch.setattr(fs, "HadoopFileSystem", connected)
    arrow_fs._filesystem.cache_clear()
    assert not ArrowFileIO("hdfs", properties).exists(path)
    arrow_fs._filesystem.cache_clear()
    assert seen == [expected]


@pytest.mark.parametrize("location", ["ftp://h/t", "jdbc:postgresql://h", "memory://x"])
def test_unknown_schemes(location: str) -> None:
    with pytest.raises(FeatureUnsupportedError, match="known are"):
        file_io_for(location)
