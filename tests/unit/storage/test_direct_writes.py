"""Large files past the page cache: the same bytes, whatever the file system says to it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from streamlake.errors import StorageError
from streamlake.storage import direct_writes, local
from streamlake.storage.direct_writes import LARGE_BYTES, write_direct
from streamlake.storage.local import LocalFileIO

SIZES = [LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 4096 * 100, 1_234_567]


@pytest.mark.parametrize("size", SIZES)
def test_content_is_exact(size: int, tmp_path: Path) -> None:
    io, path = LocalFileIO(), str(tmp_path / "m" / "v1.metadata.json")
    data = os.urandom(size)
    io.create_exclusive(path, data)
    assert io.read_bytes(path) == data
    with pytest.raises(FileExistsError):
        io.create_exclusive(path, data[:-1])
    assert os.listdir(tmp_path / "m") == ["v1.metadata.json"]


def test_a_smaller_file_after_a_larger_one(tmp_path: Path) -> None:
    """The kept buffer still holds the larger one's bytes."""
    io = LocalFileIO()
    for name, size in (("a", 3_000_000), ("b", LARGE_BYTES + 5)):
        data = os.urandom(size)
        io.create_exclusive(str(tmp_path / name), data)
        assert io.read_bytes(str(tmp_path / name)) == data


def test_threads_do_not_share_a_buffer(tmp_path: Path) -> None:
    io = LocalFileIO()
    contents = {f"{number}": bytes([number]) * 2_000_000 for number in range(6)}

    def write(name: str) -> None:
        for turn in range(5):
            io.create_exclusive(str(tmp_path / f"{name}-{turn}"), contents[name])

    threads = [threading.Thread(target=write, args=(name,)) for name in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for path in tmp_path.iterdir():
        assert path.read_bytes() == contents[path.name.split("-")[0]]
    assert len(list(tmp_path.iterdir())) == 30


@pytest.mark.parametrize("call", ["open", "write", "ftruncate"])
def test_a_file_system_that_refuses(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far the direct way came, the usual one leaves exactly the content."""
    data = os.urandom(LARGE_BYTES + 4097)
    (tmp_path / "f").touch()
    refused = []

    class Refusing:
        def __getattr__(self, name: str) -> object:
            if name == call:
                return self._refuse
            return getattr(os, name)

        @staticmethod
        def _refuse(*_: object) -> None:
            refused.append(call)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(direct_writes, "os", Refusing())
    assert not write_direct(str(tmp_path / "f"), data)
    LocalFileIO().create_exclusive(str(tmp_path / "g"), data)
    assert len(refused) == 2
    assert (tmp_path / "g").read_bytes() == data


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "write_direct", lambda *_: False)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local.os, "write", full)
    with pytest.raises(StorageError, match="no space left"):
        LocalFileIO().create_exclusive(str(tmp_path / "f"), bytes(LARGE_BYTES))
    assert list(tmp_path.iterdir()) == []
