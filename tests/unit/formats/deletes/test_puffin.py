"""Puffin files: what is written is found again, by us and by Iceberg's layout; damage is an error."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import streamlake
from streamlake.errors import DataInvalidError, MissingFileError, StorageError
from streamlake.formats.deletes.puffin import Blob, PuffinWriter, read_footer
from streamlake.storage.local import LocalFileIO

IO = LocalFileIO()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "x.puffin"


def test_blobs_and_footer(path: Path) -> None:
    writer = PuffinWriter(IO, str(path))
    assert writer.add("one", b"abc", (5, 7), properties={"näme": "wert"}) == (4, 3)
    assert writer.add("two", b"", snapshot_id=9, sequence_number=3) == (7, 0)
    assert writer.add("three", b"defgh") == (7, 5)
    assert writer.close() == path.stat().st_size
    footer = read_footer(IO, str(path))
    assert footer.properties == {"created-by": f"streamlake {streamlake.__version__}"}
    assert footer.blobs == (
        Blob("one", (5, 7), -1, -1, 4, 3, None, {"näme": "wert"}),
        Blob("two", (), 9, 3, 7, 0),
        Blob("three", (), -1, -1, 7, 5),
    )
    assert path.read_bytes()[4:12] == b"abcdefgh"


def test_layout(path: Path) -> None:
    writer = PuffinWriter(IO, str(path))
    writer.add("t", b"data", (1,))
    writer.close()
    data = path.read_bytes()
    assert data[:4] == data[8:12] == data[-4:] == b"PFA1"
    length, flags = struct.unpack("<iI", data[-12:-4])
    assert flags == 0
    assert json.loads(data[12 : 12 + length]) == {
        "blobs": [
            {
                "type": "t",
                "fields": [1],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": 4,
                "length": 4,
                "properties": {},
            }
        ],
        "properties": {"created-by": f"streamlake {streamlake.__version__}"},
    }
    assert len(data) == 8 + 4 + length + 12


def test_a_compressed_footer_of_another_writer(path: Path) -> None:
    content = {
        "blobs": [
            {
                "type": "t",
                "fields": [],
                "snapshot-id": 1,
                "sequence-number": 2,
                "offset": 4,
                "length": 9,
                "compression-codec": "zstd",
            }
        ]
    }
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(json.dumps(content).encode())
    payload = sink.getvalue().to_pybytes()
    path.parent.mkdir()
    path.write_bytes(b"PFA1" + b"." * 9 + b"PFA1" + payload + struct.pack("<iI", len(payload), 1) + b"PFA1")
    assert read_footer(IO, str(path)).blobs == (Blob("t", (), 1, 2, 4, 9, "zstd"),)


def test_an_aborted_file_is_gone(path: Path) -> None:
    writer = PuffinWriter(IO, str(path))
    writer.add("t", b"data")
    writer.abort()
    assert not path.exists()
    with pytest.raises(MissingFileError):
        read_footer(IO, str(path))


def test_storage_that_fails(path: Path) -> None:
    path.parent.mkdir()
    path.mkdir()
    with pytest.raises(StorageError, match=r"x\.puffin"):
        PuffinWriter(IO, str(path))


def test_damage_is_an_error(path: Path) -> None:
    writer = PuffinWriter(IO, str(path))
    writer.add("t", b"data")
    writer.close()
    whole = path.read_bytes()
    length = struct.unpack("<i", whole[-12:-8])[0]
    damaged = [
        b"",
        b"PFA1",
        whole[:-1],
        whole[4:],
        whole[:-8] + b"\2\0\0\0PFA1",
        whole[:-8] + b"\1\0\0\0PFA1",
        whole[:-12] + struct.pack("<i", length + 1) + whole[-8:],
        whole[:-12] + struct.pack("<i", 10_000) + whole[-8:],
        whole[:-12] + struct.pack("<i", -1) + whole[-8:],
        whole.replace(b'"offset"', b'"0ffset"'),
        whole.replace(b'"blobs"', b'"blo\xff\xff"'),
    ]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(DataInvalidError, match=r"x\.puffin: the Puffin file is damaged"):
            read_footer(IO, str(path))
