"""Runs on storage that cannot be mapped are copied once, completely, and by any number of processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamlake.errors import IndexDamagedError
from streamlake.index.runs import run_file
from streamlake.index.runs.run import RunRef, open_run, write_run
from streamlake.storage.local import LocalFileIO
from tests.unit.index.models import Codec, Row

LOCAL = LocalFileIO()


@dataclass(frozen=True)
class RemoteIO:
    """Storage at far:/ that keeps its files under `root` and notes each file that is opened."""

    root: str

    def open_input(self, path):
        with open(f"{self.root}/opened", "a") as log:
            log.write(path + "\n")
        return LOCAL.open_input(self._local(path))

    def open_output(self, path):
        return LOCAL.open_output(self._local(path))

    def delete(self, path):
        LOCAL.delete(self._local(path))

    def opened(self) -> int:
        return Path(self.root, "opened").read_text().count("\n")

    def _local(self, path):
        return self.root + path.removeprefix("far:")


@pytest.fixture
def io(tmp_path: Path) -> RemoteIO:
    return RemoteIO(str(tmp_path))


@pytest.fixture
def ref(io) -> RunRef:
    entries = Codec(data=True, sequence_values="int64").entries(
        [Row(key, 0, key, sequence_value=1) for key in range(1000)]
    )
    return write_run(io, "far:/a.run", entries, 0, 1)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_run_is_copied_once(io, ref, cache):
    for _ in range(3):
        assert len(open_run(io, ref, str(cache))) == 1000
    assert io.opened() == 1
    (copy,) = cache.iterdir()
    assert copy.read_bytes() == Path(io.root, "a.run").read_bytes()
    assert cache.stat().st_mode & 0o777 == 0o700


def test_a_damaged_copy_is_fetched_again(io, ref, cache):
    open_run(io, ref, str(cache))
    (copy,) = cache.iterdir()
    for data in (b"", copy.read_bytes()[:-5], bytes(ref.bytes)):
        LOCAL.write_bytes(str(copy), data)
        assert len(open_run(io, ref, str(cache))) == 1000
    assert io.opened() == 4


def test_a_damaged_source_is_noticed(io, ref, cache):
    data = bytearray(Path(io.root, "a.run").read_bytes())
    data[500] ^= 4
    Path(io.root, "a.run").write_bytes(data)
    with pytest.raises(IndexDamagedError, match=r"far:/a\.run: a checksum"):
        open_run(io, ref, str(cache))
    Path(io.root, "a.run").unlink()
    for copy in cache.iterdir():
        copy.unlink()
    with pytest.raises(IndexDamagedError, match=r"far:/a\.run: the file is missing"):
        open_run(io, ref, str(cache))
    assert list(cache.iterdir()) == []


def _open(io, ref, cache, answers):
    answers.put(len(open_run(io, ref, cache)))


def test_many_processes_share_the_cache(io, ref, cache):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=_open, args=(io, ref, str(cache), answers)) for _ in range(3)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=60) for _ in processes] == [1000] * 3
    for process in processes:
        process.join()
    assert len(list(cache.iterdir())) == 1


def test_copies_that_nobody_uses_are_removed(io, ref, cache):
    cache.mkdir()
    long_ago = time.time() - 2 * 86400
    for name in ("old.run", "old.run.1234.tmp"):
        (cache / name).touch()
        os.utime(cache / name, (long_ago, long_ago))
    (cache / "fresh.run").touch()
    os.utime(cache / "fresh.run", (time.time(), long_ago))
    open_run(io, ref, str(cache))
    left = {path.name for path in cache.iterdir()}
    assert "fresh.run" in left
    assert not left & {"old.run", "old.run.1234.tmp"}


def test_opening_keeps_a_copy_alive(io, ref, cache):
    open_run(io, ref, str(cache))
    (copy,) = cache.iterdir()
    long_ago = time.time() - 2 * 86400
    os.utime(copy, (long_ago, long_ago))
    open_run(io, ref, str(cache))
    run_file._remove_unused(str(cache))
    assert copy.exists()


def test_the_default_cache_is_the_users_own(tmp_path, monkeypatch, io, ref):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    open_run(io, ref)
    directory = tmp_path / "tmp" / f"streamlake-index-{os.getuid()}"
    assert len(list(directory.iterdir())) == 1


def test_somebody_elses_directory_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"streamlake-index-{os.getuid()}").symlink_to(elsewhere)
    directory = run_file.default_cache_directory()
    assert Path(directory).resolve() != elsewhere
    assert run_file.default_cache_directory() == directory
    run_file._private.clear()
