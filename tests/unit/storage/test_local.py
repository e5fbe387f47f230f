"""LocalFileIO: atomic replace and create, Java's checksum side files, errors that say what to do."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
from pathlib import Path

import pytest

from streamlake.errors import FeatureUnsupportedError, MissingFileError, StorageError
from streamlake.storage.file_io import FileIO, file_io_for, storage_errors
from streamlake.storage.local import LocalFileIO, local_path


@pytest.fixture
def io() -> LocalFileIO:
    return LocalFileIO()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("/a/x%2Fy=1 2", "/a/x%2Fy=1 2"),
        ("file:/a%20b", "/a%20b"),
    ],
)
def test_path_styles(path: str, expected: str) -> None:
    assert local_path(path) == expected


@pytest.mark.parametrize("path", ["a/b", "./a", "", "file:a", "file://host/a", "s3://b/k"])
def test_paths_that_are_not_absolute_are_refused(path: str) -> None:
    with pytest.raises(StorageError, match="absolute"):
        local_path(path)


def test_it_is_a_file_io_and_pickles(io: LocalFileIO) -> None:
    assert isinstance(io, FileIO)
    assert pickle.loads(pickle.dumps(io)) == io
    assert file_io_for("/x") == file_io_for("file:/x") == io


@pytest.mark.parametrize("style", ["{}", "file:{}", "file://{}"])
def test_round_trip_in_every_style(io: LocalFileIO, tmp_path: Path, style: str) -> None:
    path = style.format(tmp_path / "new" / "dir" / "f.bin")
    assert not io.exists(path)
    io.write_bytes(path, b"one")
    assert io.read_bytes(path) == b"one"
    io.write_bytes(path, b"second")
    assert (io.read_bytes(path), io.size(path), io.exists(path)) == (b"second", 6, True)
    with io.open_input(path) as stream:
        stream.seek(2)
        assert stream.read() == b"cond"
    io.delete(path)
    io.delete(path)
    assert not io.exists(path)


def test_open_output_makes_parents_and_overwrites(io: LocalFileIO, tmp_path: Path) -> None:
    path = f"{tmp_path}/p/q/f"
    for content in (b"long content", b"short"):
        with io.open_output(path) as stream:
            stream.write(content)
    assert io.read_bytes(path) == b"short"


def test_missing_files(io: LocalFileIO, tmp_path: Path) -> None:
    path = f"{tmp_path}/nothing"
    for action in (io.read_bytes, io.open_input, io.size):
        with pytest.raises(MissingFileError, match="nothing"):
            action(path)
    io.delete(f"{tmp_path}/no/such/dir/f")
    assert list(io.list_prefix(f"{tmp_path}/no/such")) == []


def test_create_exclusive_keeps_the_first(io: LocalFileIO, tmp_path: Path) -> None:
    path = f"file:{tmp_path}/metadata/v1.metadata.json"
    io.create_exclusive(path, b"first")
    with pytest.raises(FileExistsError, match=r"v1\.metadata\.json"):
        io.create_exclusive(path, b"second")
    assert io.read_bytes(path) == b"first"
    assert os.listdir(tmp_path / "metadata") == ["v1.metadata.json"]


def test_create_exclusive_loses_a_race_after_its_first_look(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"theirs")
    monkeypatch.setattr("streamlake.storage.local.os.path.lexists", lambda _: False)
    with pytest.raises(FileExistsError):
        io.create_exclusive(str(path), b"ours")
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["f"]


def test_create_exclusive_whose_answer_was_lost_has_won(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link_twice(source: str, target: str) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    io.create_exclusive(f"{tmp_path}/f", b"ours")
    assert io.read_bytes(f"{tmp_path}/f") == b"ours"


def _race(directory: str, me: int, rounds: int, won: multiprocessing.SimpleQueue[tuple[int, int]]) -> None:
    io = LocalFileIO()
    for number in range(rounds):
        try:
            io.create_exclusive(f"{directory}/v{number}", str(me).encode())
            won.put((number, me))
        except FileExistsError:
            pass


def test_racing_processes_have_one_winner_each_time(io: LocalFileIO, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    won: multiprocessing.SimpleQueue[tuple[int, int]] = context.SimpleQueue()
    rounds = 60
    racers = [context.Process(target=_race, args=(str(tmp_path), me, rounds, won)) for me in range(3)]
    for racer in racers:
        racer.start()
    winners: dict[int, int] = {}
    for _ in range(rounds):
        number, me = won.get()
        assert number not in winners
        winners[number] = me
    for racer in racers:
        racer.join(30)
        assert racer.exitcode == 0
    assert won.empty()
    assert {n: int(io.read_bytes(f"{tmp_path}/v{n}")) for n in range(rounds)} == winners
    assert len(os.listdir(tmp_path)) == rounds


@pytest.mark.parametrize("action", ["write_bytes", "open_output", "delete", "create_exclusive"])
def test_stale_checksum_files_of_java_go(io: LocalFileIO, tmp_path: Path, action: str) -> None:
    path, crc = tmp_path / "version-hint.text", tmp_path / ".version-hint.text.crc"
    crc.write_bytes(b"stale")
    if action != "create_exclusive":
        path.write_bytes(b"1")
    if action == "delete":
        io.delete(str(path))
    elif action == "open_output":
        io.open_output(str(path)).close()
    else:
        getattr(io, action)(str(path), b"2")
    assert not crc.exists()


def test_the_checksum_of_a_file_that_stays_stays(io: LocalFileIO, tmp_path: Path) -> None:
    path, crc = tmp_path / "v1.metadata.json", tmp_path / ".v1.metadata.json.crc"
    path.write_bytes(b"1")
    crc.write_bytes(b"valid")
    with pytest.raises(FileExistsError):
        io.create_exclusive(str(path), b"2")
    assert crc.exists()


@pytest.mark.parametrize("style", ["{}", "file:{}", "file://{}/"])
def test_listing_keeps_the_style_and_hides_checksums(io: LocalFileIO, tmp_path: Path, style: str) -> None:
    for name in ("a.parquet", ".a.parquet.crc", "d=1/b.parquet", "d=1/e=2/c.parquet", ".x.tmp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    root = style.format(tmp_path)
    found = {info.path: info for info in io.list_prefix(root)}
    prefix = root.rstrip("/")
    assert set(found) == {
        f"{prefix}/{n}" for n in ("a.parquet", "d=1/b.parquet", "d=1/e=2/c.parquet", ".x.tmp")
    }
    info = found[f"{prefix}/a.parquet"]
    assert info.size == 5
    assert info.modified_ms == (tmp_path / "a.parquet").stat().st_mtime_ns // 1_000_000
    assert all(io.read_bytes(path) == b"12345" for path in found)


def _failing(code: int) -> object:
    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "no space left"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.ENAMETOOLONG, "too long"),
        (errno.EIO, "retried"),
    ],
)
@pytest.mark.parametrize("action", ["write_bytes", "create_exclusive"])
def test_failing_writes_leave_nothing_and_advise(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, code: int, advice: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", _failing(code))
        with pytest.raises(StorageError, match=advice) as caught:
            getattr(io, action)(f"{tmp_path}/f", b"data")
    assert f"{tmp_path}/f" in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_real_full_device(io: LocalFileIO) -> None:
    def fill() -> None:
        with storage_errors("writing", "/dev/full"), io.open_output("/dev/full") as stream:
            stream.write(b"x" * 100_000)

    with pytest.raises(StorageError, match="no space left"):
        fill()


def test_a_file_system_without_hard_links(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EPERM))
    with pytest.raises(FeatureUnsupportedError, match="hard links"):
        io.create_exclusive(f"{tmp_path}/f", b"data")
    assert os.listdir(tmp_path) == []


def test_a_failed_replace_keeps_the_old_content(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _failing(errno.EIO))
        with pytest.raises(StorageError):
            io.write_bytes(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_parent_that_is_a_file(io: LocalFileIO, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(StorageError, match="f/x"):
        io.write_bytes(f"{tmp_path}/f/x", b"")
    with pytest.raises(StorageError, match="f/x"):
        io.open_output(f"{tmp_path}/f/x")
    assert not io.exists(f"{tmp_path}/f/x")


def test_long_names_still_get_a_temporary_name(io: LocalFileIO, tmp_path: Path) -> None:
    for name in ("n" * 255, "\u65e5" * 85):
        path = f"{tmp_path}/{name}"
        io.create_exclusive(path, b"1")
        io.write_bytes(path, b"22")
        assert io.read_bytes(path) == b"22"
        io.delete(path)
    assert os.listdir(tmp_path) == []
