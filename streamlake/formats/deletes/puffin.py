"""Puffin files: blobs one after the other, and a JSON footer that describes them (spec: Puffin).

Deletion vectors are blobs of such files. Manifest entries record where a deletion vector is, so the footer
serves other readers. Invariant: a blob is written as given, uncompressed; without `close` there is no valid
file.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa

import streamlake
from streamlake.errors import DataInvalidError, StreamlakeError
from streamlake.storage.file_io import FileIO, storage_errors

_MAGIC = b"PFA1"
_TAIL = struct.Struct("<iI4s")
_COMPRESSED = 1


@dataclass(frozen=True)
class Blob:
    """One entry of a footer.

    `offset` and `length` are bytes in the file; `compression` is None, "lz4" or "zstd".
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    compression: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Footer:
    """The content of a footer: the blobs and properties of its file."""

    blobs: tuple[Blob, ...]
    properties: Mapping[str, str] = field(default_factory=dict)


class PuffinWriter:
    """Writes one Puffin file: call `add` any number of times, then `close` or `abort`.

    Raises StorageError.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io, self._path = io, path
        self._blobs: list[dict[str, Any]] = []
        with storage_errors("writing", path):
            self._sink: BinaryIO = io.open_output(path)
            self._sink.write(_MAGIC)
        self._at = len(_MAGIC)

    def add(
        self,
        type_: str,
        data: bytes,
        fields: Sequence[int] = (),
        snapshot_id: int = -1,
        sequence_number: int = -1,
        properties: Mapping[str, str] | None = None,
    ) -> tuple[int, int]:
        """Write a blob and return its (offset, length).

        Snapshot id and sequence number are -1 while they are unknown.
        """
        offset = self._at
        with storage_errors("writing", self._path):
            self._sink.write(data)
        self._at += len(data)
        self._blobs.append(
            {
                "type": type_,
                "fields": list(fields),
                "snapshot-id": snapshot_id,
                "sequence-number": sequence_number,
                "offset": offset,
                "length": len(data),
                "properties": dict(properties or {}),
            }
        )
        return offset, len(data)

    def close(self) -> int:
        """Write the footer and return the file's size in bytes."""
        content = {
            "blobs": self._blobs,
            "properties": {"created-by": f"streamlake {streamlake.__version__}"},
        }
        payload = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        footer = _MAGIC + payload + _TAIL.pack(len(payload), 0, _MAGIC)
        with storage_errors("writing", self._path):
            self._sink.write(footer)
            self._sink.close()
        return self._at + len(footer)

    def abort(self) -> None:
        """Discard the file and remove it; never raises."""
        with contextlib.suppress(OSError, ValueError):
            self._sink.close()
        with contextlib.suppress(StreamlakeError, OSError):
            self._io.delete(self._path)


def read_footer(io: FileIO, path: str) -> Footer:
    """The footer of a Puffin file.

    Raises DataInvalidError when it is damaged, StorageError when it cannot be read.
    """
    size = io.size(path)
    with io.open_input(path) as stream, storage_errors("reading", path):
        tail = _read(stream, size - _TAIL.size, _TAIL.size, path)
        length, flags, magic = _TAIL.unpack(tail)
        if magic != _MAGIC or flags & ~_COMPRESSED:
            raise _damaged(path, f"magic {magic.hex()}, flags {flags:#x}")
        start = size - _TAIL.size - length - len(_MAGIC)
        whole = _read(stream, start, len(_MAGIC) + length, path) if length >= 0 else b""
    if whole[: len(_MAGIC)] != _MAGIC:
        raise _damaged(path, f"a footer of {length} bytes")
    try:
        payload = whole[len(_MAGIC) :]
        if flags & _COMPRESSED:
            payload = pa.CompressedInputStream(pa.BufferReader(payload), "lz4").read()
        content = json.loads(payload)
        blobs = tuple(_blob(each) for each in content["blobs"])
        properties = dict(content.get("properties") or {})
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as cause:
        raise _damaged(path, cause) from cause
    for blob in blobs:
        if blob.offset < len(_MAGIC) or blob.length < 0 or blob.offset + blob.length > start:
            raise _damaged(path, f"a blob of {blob.length} bytes at {blob.offset}")
    return Footer(blobs, properties)


def _read(stream: BinaryIO, start: int, length: int, path: str) -> bytes:
    if start < 0:
        raise _damaged(path, "it is too short")
    stream.seek(start)
    data = bytes(stream.read(length))
    if len(data) != length:
        raise _damaged(path, f"{len(data)} of {length} bytes at {start}")
    return data


def _blob(content: Mapping[str, Any]) -> Blob:
    return Blob(
        type=str(content["type"]),
        fields=tuple(int(each) for each in content["fields"]),
        snapshot_id=int(content["snapshot-id"]),
        sequence_number=int(content["sequence-number"]),
        offset=int(content["offset"]),
        length=int(content["length"]),
        compression=content.get("compression-codec"),
        properties=dict(content.get("properties") or {}),
    )


def _damaged(path: str, cause: object) -> DataInvalidError:
    return DataInvalidError(f"{path}: the Puffin file is damaged ({cause}); restore it")
