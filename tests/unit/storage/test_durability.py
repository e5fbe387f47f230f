"""What LocalFileIO has written is there after a loss of power, on a device that forgets everything that was not fsynced."""

from __future__ import annotations

import errno
import os
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlake.errors import InvalidOptionError, MissingFileError, StorageError
from streamlake.storage import durability
from streamlake.storage.durability import FSYNC, wants_fsync
from streamlake.storage.file_io import file_io_for
from streamlake.storage.local import LocalFileIO
from streamlake.write.target.options import WriteOptions
from tests.helpers.lossy_disk import LossyDisk, PowerLoss

Write = Callable[[LocalFileIO, str, bytes], object]


def _stream(io: LocalFileIO, path: str, data: bytes) -> None:
    with io.open_output(path) as stream:
        stream.write(data)


WRITES: dict[str, Write] = {
    "write_bytes": LocalFileIO.write_bytes,
    "create_exclusive": LocalFileIO.create_exclusive,
    "open_output": _stream,
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LossyDisk]:
    home = tmp_path / "home"
    home.mkdir()
    with LossyDisk(home).at_work() as at_work:
        yield at_work


@pytest.mark.parametrize("size", [5, 400_000])
@pytest.mark.parametrize("below", ["f", "new/directories/f"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_what_was_written_is_there(disk: LossyDisk, write: Write, below: str, size: int) -> None:
    path, data = disk.home / below, os.urandom(size)
    write(LocalFileIO(), str(path), data)
    disk.come_back()
    assert path.read_bytes() == data


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_without_fsync_it_is_forgotten(disk: LossyDisk, write: Write) -> None:
    io = LocalFileIO().with_fsync(False)
    write(io, str(disk.home / "d" / "f"), b"data")
    io.sync(str(disk.home / "d" / "f"))
    assert disk.syncs == 0
    disk.come_back()
    assert list(disk.home.iterdir()) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("write", ["write_bytes", "create_exclusive"])
def test_a_name_never_shows_half_a_file(tmp_path: Path, write: str, seed: int) -> None:
    """At every fsync of it: the file is the older one, or the newer one, or was not there and is not."""
    at = 0
    while True:
        home = tmp_path / str(at)
        home.mkdir()
        with LossyDisk(home).at_work() as disk:
            path = home / "d" / "f"
            if write == "write_bytes":
                LocalFileIO().write_bytes(str(path), b"older")
            disk.cut_after(at)
            try:
                WRITES[write](LocalFileIO(), str(path), b"newer and longer")
            except PowerLoss:
                disk.come_back(random.Random(seed))
            else:
                break
            found = path.read_bytes() if path.exists() else None
            assert found in (
                (b"older", b"newer and longer") if write == "write_bytes" else (None, b"newer and longer")
            )
        at += 1
    assert at >= 2, "there was nothing to cut"


def test_a_directory_that_somebody_else_has_made_is_reached(disk: LossyDisk) -> None:
    """Another task made it a moment ago, and was killed before its name was durable."""
    (disk.home / "a" / "b").mkdir(parents=True)
    LocalFileIO().write_bytes(str(disk.home / "a" / "b" / "f"), b"data")
    disk.come_back()
    assert (disk.home / "a" / "b" / "f").read_bytes() == b"data"


def test_a_directory_is_reached_once(disk: LossyDisk) -> None:
    io = LocalFileIO()
    io.write_bytes(str(disk.home / "a" / "b" / "f"), b"data")
    first, before = disk.syncs, disk.syncs
    io.write_bytes(str(disk.home / "a" / "b" / "g"), b"data")
    assert disk.syncs - before == 2 < first


def test_what_somebody_else_has_written_is_synced(disk: LossyDisk) -> None:
    path = disk.home / "d" / "f"
    path.parent.mkdir()
    path.write_bytes(b"of Spark")
    LocalFileIO().sync(str(path))
    disk.come_back()
    assert path.read_bytes() == b"of Spark"
    with pytest.raises(MissingFileError):
        LocalFileIO().sync(str(disk.home / "nothing"))


def test_a_device_that_cannot_take_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageError, match="f: Input/output error"):
        LocalFileIO().write_bytes(str(tmp_path / "f"), b"data")
    assert list(tmp_path.iterdir()) == [], "nothing is left of it"
    with pytest.raises(OSError, match="Input/output error"):
        _stream(LocalFileIO(), str(tmp_path / "g"), b"data")


@pytest.mark.parametrize("answer", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_directories_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    def refusing(descriptor: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(os, "fsync", refusing)
    durability._reached.clear()
    LocalFileIO().write_bytes(str(tmp_path / "d" / "f"), b"data")
    assert (tmp_path / "d" / "f").read_bytes() == b"data"


def test_it_travels_with_the_storage() -> None:
    off = file_io_for("/lake").with_fsync(False)
    assert pickle.loads(pickle.dumps(off)) == off != file_io_for("/lake")


def test_the_property() -> None:
    assert wants_fsync({})
    assert wants_fsync({FSYNC: "true"})
    assert not wants_fsync({FSYNC: " False"})
    WriteOptions.from_properties({FSYNC: "false"})
    with pytest.raises(InvalidOptionError, match=FSYNC.replace(".", r"\.")):
        WriteOptions.from_properties({FSYNC: "sometimes"})
