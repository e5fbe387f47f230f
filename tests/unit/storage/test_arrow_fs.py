"""ArrowFileIO: paths with a scheme over a pyarrow file system, and the host that they name."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyarrow import fs

from streamlake.errors import FeatureUnsupportedError, MissingFileError
from streamlake.storage import arrow_fs
from streamlake.storage.arrow_fs import ArrowFileIO
from streamlake.storage.file_io import FileIO, file_io_for


@pytest.fixture
def io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrowFileIO:
    (tmp_path / "bucket").mkdir()
    beneath = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(arrow_fs, "_filesystem", lambda authority, items: beneath)
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


def test_no_exclusive_create(io: ArrowFileIO) -> None:
    with pytest.raises(FeatureUnsupportedError, match="catalog"):
        io.create_exclusive("hdfs://host/bucket/v1.metadata.json", b"")
    assert not io.exists("hdfs://host/bucket/v1.metadata.json")


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
