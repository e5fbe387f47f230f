"""No run file but the one that the RunRef was made for is ever used."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.errors import IndexDamagedError, StorageError
from streamlake.index.runs import run_file, run_writer
from streamlake.index.runs.entries import SUPERSEDES, TOMBSTONE, Entries
from streamlake.index.runs.run import RunRef, open_run, write_run
from streamlake.index.runs.run_writer import RunWriter
from streamlake.storage.local import LocalFileIO
from tests.unit.index.models import Codec, Row

IO = LocalFileIO()


def some_entries(first: int = 0) -> Entries:
    codec = Codec(data=True, sequence_values="bytes")
    flags = (0, SUPERSEDES, TOMBSTONE)
    return codec.entries(
        [Row(key, key % 6, key, flags[key % 3], sequence_value=key % 5) for key in range(first, first + 40)]
    )


@pytest.fixture
def ref(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRef:
    """A run of three blocks."""
    monkeypatch.setattr(run_writer, "BLOCK_ENTRIES", 15)
    return write_run(IO, str(tmp_path / "a.run"), some_entries(), 1, 4)


def refused(ref: RunRef, match: str | None = None) -> None:
    with pytest.raises(IndexDamagedError, match=match) as caught:
        open_run(IO, ref)
    assert str(caught.value).startswith(ref.path)
    assert "rebuild the index" in str(caught.value)


def rewrite(ref: RunRef, data: bytes) -> None:
    IO.write_bytes(ref.path, data)


def test_a_flipped_bit_anywhere_is_noticed(ref):
    data = IO.read_bytes(ref.path)
    chance = random.Random(3)
    edges = [*range(64), *range(8 * len(data) - 24 * 8, 8 * len(data))]
    for at in [*edges, *(8 * byte + chance.randrange(8) for byte in range(len(data)))]:
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        rewrite(ref, bytes(flipped))
        refused(ref)
    rewrite(ref, data)
    assert len(open_run(IO, ref)) == 40


def test_a_truncated_or_longer_file_is_noticed(ref):
    data = IO.read_bytes(ref.path)
    for length in [*range(0, len(data), 13), len(data) - 1]:
        rewrite(ref, data[:length])
        refused(ref)
    rewrite(ref, data + b"\0")
    refused(ref)
    rewrite(ref, data + data)
    refused(ref)


def test_zeroed_pages_are_noticed(ref):
    data = IO.read_bytes(ref.path)
    rewrite(ref, data[:64] + bytes(len(data) - 64 - 600) + data[-600:])
    refused(ref, "checksum")


def test_the_content_of_another_run_is_noticed(ref, tmp_path):
    other = write_run(IO, str(tmp_path / "b.run"), some_entries(100), 1, 4)
    rewrite(ref, IO.read_bytes(other.path))
    refused(ref, "not the file that the index state names")
    refused(replace(ref, bytes=other.bytes))
    refused(replace(other, path=ref.path, bucket=2), "not the bucket")
    refused(replace(other, path=ref.path, entries=39), "not the bucket")


def test_a_missing_file_is_noticed(ref):
    IO.delete(ref.path)
    refused(ref, "missing")


def test_another_version_is_named(ref):
    data = IO.read_bytes(ref.path)
    rewrite(ref, data[:6] + struct.pack("<H", 2) + data[8:])
    refused(ref, "format version 2, this is streamlake for version 1")


def test_what_is_no_run_is_named(ref):
    rewrite(ref, b"PAR1" * 100)
    refused(ref, "not a run of the key index")


def test_the_storage_failing_is_no_damage(tmp_path):
    (tmp_path / "a.run").mkdir()
    with pytest.raises(StorageError):
        open_run(IO, RunRef(str(tmp_path / "a.run"), 0, 1, 0, 100, 0))


def test_a_file_is_verified_once(ref, monkeypatch):
    verified = []
    verify = run_file._verify_blocks
    monkeypatch.setattr(run_file, "_verify_blocks", lambda *given: (verified.append(given), verify(*given)))
    open_run(IO, ref)
    open_run(IO, ref)
    assert len(verified) == 1
    rewrite(ref, IO.read_bytes(ref.path))
    open_run(IO, ref)
    assert len(verified) == 2


def test_a_footer_is_decoded_once(ref, monkeypatch):
    """It names every data file of its run: what a checkpoint costs does not follow the number of files."""
    decoded = []
    decode = run_file.decode_footer
    monkeypatch.setattr(run_file, "decode_footer", lambda *given: (decoded.append(given), decode(*given))[1])
    monkeypatch.setattr(run_file, "_MOST_FOOTERS", 2)
    first = open_run(IO, ref)
    assert open_run(IO, ref).footer is first.footer
    assert len(decoded) == 1
    rewrite(ref, IO.read_bytes(ref.path))
    assert open_run(IO, ref).footer == first.footer
    assert len(decoded) == 2
    assert len(run_file._footers) <= 2


def test_entries_out_of_order_leave_no_file(tmp_path):
    path = str(tmp_path / "a.run")
    writer = RunWriter(IO, path, 0, 1)
    writer.append(some_entries().slice(20, 40))
    with pytest.raises(ValueError, match="order of their hashes"):
        writer.append(some_entries().slice(0, 20))
    assert not IO.exists(path)


def test_a_failing_storage_leaves_no_file(tmp_path):
    class Full(LocalFileIO):
        def open_output(self, path):
            stream = super().open_output(path)

            class Stream:
                count = 0

                def write(self, data):
                    self.count += 1
                    if self.count > 5:
                        raise OSError(28, "No space left on device")
                    return stream.write(data)

                def close(self):
                    stream.close()

            return Stream()

    path = str(tmp_path / "a.run")
    with pytest.raises(StorageError, match="no space left"):
        write_run(Full(), path, some_entries(), 0, 1)
    assert not IO.exists(path)
