"""Avro object container files: header, blocks, codecs (Avro specification, Object Container Files).

The frame around encoded records; manifests, manifest lists and Avro data files are such files. It is read here, and
not by fastavro, so that a schema is parsed once per process and not once per file, and so that values stay what is
stored: logical types (dates, timestamps) can be left as numbers. Invariant: damage is a DataInvalidError that names the
file, whatever byte is wrong.
"""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.avro_decoding import Decoder, decode_long, decode_records
from streamlake.formats.avro_encoding import encode_long
from streamlake.ids import new_uuid

_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_CRC_SIZE = 4
_DAMAGE = (
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    zlib.error,
    lzma.LZMAError,
    OSError,
)

Json = Any


@dataclass(frozen=True)
class AvroFile:
    """A container file taken apart: its metadata (without `avro.*`), the writer's schema text and its blocks."""

    path: str
    metadata: dict[str, str]
    schema_text: str
    blocks: tuple[tuple[int, bytes], ...]

    def values(self, decode: Decoder) -> list[Any]:
        """Every record, as `decode` (of `avro_decoding.decoder_of`) gives it."""
        records: list[Any] = []
        for count, payload in self.blocks:
            try:
                records += decode_records(decode, payload, count)
            except (*_DAMAGE, struct.error) as cause:
                raise damaged(self.path, f"a block does not decode ({cause})") from cause
        return records

    def records(self, parsed: ParsedSchema) -> Iterator[Any]:
        """Every record, decoded by fastavro; `parsed` comes from `parse_schema` of `schema_text`, rewritten as the caller likes."""
        for count, payload in self.blocks:
            yield from self._block(parsed, count, payload)

    def _block(self, parsed: ParsedSchema, count: int, payload: bytes) -> list[Any]:
        if count == 0:
            return []
        # A block is an array without its frame: one call decodes all of its records.
        stream = io.BytesIO(encode_long(count) + payload + b"\x00")
        try:
            records = fastavro.schemaless_reader(stream, parsed.writer, parsed.reader)
        except _DAMAGE as cause:
            raise damaged(self.path, f"a block does not decode ({cause})") from cause
        if stream.tell() != len(stream.getbuffer()) or len(records) != count:
            raise damaged(self.path, "a block is longer or shorter than its records")
        return list(records)


@dataclass(frozen=True, eq=False)
class ParsedSchema:
    """What fastavro needs to decode blocks: an array of the writer's record, and of the reader's, if it differs."""

    writer: Any
    reader: Any = None


def parse_schema(schema: Json, reader: Json = None) -> ParsedSchema:
    """Prepare a record schema (as JSON values) for many files; `reader` may leave out fields, which are skipped."""
    return ParsedSchema(
        fastavro.parse_schema({"type": "array", "items": schema}),
        None if reader is None else fastavro.parse_schema({"type": "array", "items": reader}),
    )


def damaged(path: str, what: str) -> DataInvalidError:
    """The error for a container file that cannot be trusted."""
    return DataInvalidError(
        f"{path} is damaged: {what}; restore the file from a backup, or roll the table back to a snapshot that does "
        "not use it"
    )


def read_container(data: bytes, path: str) -> AvroFile:
    """Take a container file apart and decompress its blocks.

    Raises DataInvalidError when it is damaged or no Avro file, FeatureUnsupportedError for an unknown codec.
    """
    if not data.startswith(_MAGIC):
        raise damaged(path, "it does not begin as an Avro file")
    try:
        header, at = _read_header(data)
        sync = data[at : at + _SYNC_SIZE]
        at += _SYNC_SIZE
        codec = header.get("avro.codec", b"null").decode("utf-8")
        schema_text = header["avro.schema"].decode("utf-8")
        metadata = {
            key: value.decode("utf-8", "surrogateescape")
            for key, value in header.items()
            if not key.startswith("avro.")
        }
        decompress = _DECOMPRESS.get(codec)
        if decompress is None:
            raise FeatureUnsupportedError(f"{path}: the Avro codec {codec!r} is not supported")
        blocks = []
        while at < len(data):
            count, at = decode_long(data, at)
            size, at = decode_long(data, at)
            end = at + size
            if count < 0 or size < 0 or data[end : end + _SYNC_SIZE] != sync or len(sync) != _SYNC_SIZE:
                raise damaged(path, f"the block at byte {at} is cut off or not where it should be")
            blocks.append((count, decompress(data[at:end])))
            at = end + _SYNC_SIZE
    except _DAMAGE as cause:
        raise damaged(path, f"{type(cause).__name__}: {cause}") from cause
    return AvroFile(path, metadata, schema_text, tuple(blocks))


def _read_header(data: bytes) -> tuple[dict[str, bytes], int]:
    header: dict[str, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = decode_long(data, at)
        if count == 0:
            return header, at
        if count < 0:
            count = -count
            _, at = decode_long(data, at)
        for _ in range(count):
            key, at = _decode_bytes(data, at)
            value, at = _decode_bytes(data, at)
            header[key.decode("utf-8")] = value


def container_header(schema_text: str, metadata: Mapping[str, str], codec: str) -> bytes:
    """The part of a file before its sync marker; the same for all files of one schema and metadata."""
    entries = {
        **{key: value.encode("utf-8") for key, value in metadata.items()},
        "avro.schema": schema_text.encode("utf-8"),
        "avro.codec": codec.encode("utf-8"),
    }
    parts = [_MAGIC, encode_long(len(entries))]
    for key, value in entries.items():
        parts += (_encode_bytes(key.encode("utf-8")), _encode_bytes(value))
    parts.append(b"\x00")
    return b"".join(parts)


def write_container(header: bytes, codec: str, blocks: Iterable[tuple[int, bytes]]) -> bytes:
    """A whole file from `container_header` and encoded blocks (record count, uncompressed bytes)."""
    sync = uuid.UUID(new_uuid()).bytes
    return b"".join((header, sync, *(container_block(codec, *block, sync) for block in blocks)))


def container_block(codec: str, count: int, payload: bytes, sync: bytes) -> bytes:
    """One block (record count, uncompressed bytes) as it stands in a file after header and sync marker."""
    body = _COMPRESS[codec](payload)
    return b"".join((encode_long(count), encode_long(len(body)), body, sync))


def _encode_bytes(value: bytes) -> bytes:
    return encode_long(len(value)) + value


def _decode_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = decode_long(data, at)
    if size < 0 or at + size > len(data):
        raise EOFError("a text runs past the end of the file")
    return data[at : at + size], at + size


def _deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


def _inflate(data: bytes) -> bytes:
    return zlib.decompress(data, -zlib.MAX_WBITS)


def _with_crc(data: bytes) -> bytes:
    return bytes(pa.compress(data, "snappy", asbytes=True)) + zlib.crc32(data).to_bytes(_CRC_SIZE, "big")


def _without_crc(data: bytes) -> bytes:
    body, size, shift, at = data[:-_CRC_SIZE], 0, 0, 0
    while True:
        size |= (body[at] & 0x7F) << shift
        if not body[at] & 0x80:
            break
        at, shift = at + 1, shift + 7
    plain = bytes(pa.decompress(body, size, "snappy", asbytes=True))
    if zlib.crc32(plain).to_bytes(_CRC_SIZE, "big") != data[-_CRC_SIZE:]:
        raise ValueError("the checksum of a block does not match")
    return plain


def _unzstd(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _with_crc,
    "zstandard": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}
_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _inflate,
    "snappy": _without_crc,
    "zstandard": _unzstd,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}
