"""Container structure of an ORC file: its protobuf messages and the compressed chunks of its streams.

It holds only what is needed to replace one stream of a finished file. Messages are lists of fields as they
are in the file, so that unknown fields stay as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
NONE, ZLIB, SNAPPY, LZO, LZ4, ZSTD = range(6)


@dataclass(frozen=True)
class ProtoField:
    """One field of a message: `value` is an int for varints, else the raw bytes."""

    number: int
    wire: int
    value: int | bytes


Message = list[ProtoField]


def parse_message(data: bytes) -> Message:
    """The fields of a protobuf message in their order."""
    found, at = [], 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == VARINT:
            value, at = _read_varint(data, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(wire)
            if size is None:
                size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
        found.append(ProtoField(number, wire, value))
    return found


def message_bytes(message: Message) -> bytes:
    """The message as it is encoded in a file."""
    parts = []
    for part in message:
        parts.append(_varint(part.number << 3 | part.wire))
        if isinstance(part.value, int):
            parts.append(_varint(part.value))
        else:
            parts += [_varint(len(part.value)), part.value] if part.wire == BYTES else [part.value]
    return b"".join(parts)


def number(message: Message, field: int, default: int = 0) -> int:
    """The value of the varint `field` of the message."""
    return next(
        (part.value for part in message if part.number == field and isinstance(part.value, int)), default
    )


def children(message: Message, field: int) -> list[Message]:
    """The messages of the repeated `field`."""
    return [
        parse_message(part.value)
        for part in message
        if part.number == field and isinstance(part.value, bytes)
    ]


def with_number(message: Message, field: int, value: int) -> Message:
    """The message with its varint `field` set."""
    kept = [part for part in message if part.number != field]
    return [*kept, ProtoField(field, VARINT, value)]


def with_children(message: Message, field: int, values: list[Message]) -> Message:
    """The message with its repeated `field` replaced."""
    kept = [part for part in message if part.number != field]
    return [*kept, *(ProtoField(field, BYTES, message_bytes(each)) for each in values)]


def unpacked(data: bytes, codec: int) -> bytes:
    """The content of a stream, decompressed from its chunks."""
    if codec == NONE:
        return data
    return b"".join(chunk if original else _decompressed(chunk, codec) for chunk, original in _chunks(data))


def packed(data: bytes, codec: int, block_size: int) -> bytes:
    """`data` cut into chunks, which are deflated in zlib files and stored as they are in others."""
    if codec == NONE:
        return data
    parts = []
    for start in range(0, len(data), block_size):
        block = data[start : start + block_size]
        smaller = _deflated(block) if codec == ZLIB else block
        original = len(smaller) >= len(block)
        chunk = block if original else smaller
        parts += [(len(chunk) << 1 | original).to_bytes(3, "little"), chunk]
    return b"".join(parts)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bool]]:
    at = 0
    while at < len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        size = header >> 1
        yield data[at + 3 : at + 3 + size], bool(header & 1)
        at += 3 + size


def _deflated(block: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(block) + engine.flush()


def _decompressed(chunk: bytes, codec: int) -> bytes:
    if codec == ZLIB:
        return zlib.decompress(chunk, wbits=-15)
    if codec == ZSTD:
        return bytes(pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read())
    if codec == SNAPPY:
        size, _ = _read_varint(chunk, 0)
        return bytes(pa.Codec("snappy").decompress(chunk, decompressed_size=size))
    return _lz4(chunk)


def _lz4(block: bytes) -> bytes:
    """The content of a raw LZ4 block, which does not record its size; footers are small."""
    out, at = bytearray(), 0
    while at < len(block):
        token, at = block[at], at + 1
        size, at = _lz4_length(block, at, token >> 4)
        out += block[at : at + size]
        at += size
        if at >= len(block):
            break
        distance, at = int.from_bytes(block[at : at + 2], "little"), at + 2
        size, at = _lz4_length(block, at, token & 15)
        for _ in range(size + 4):
            out.append(out[-distance])
    return bytes(out)


def _lz4_length(block: bytes, at: int, size: int) -> tuple[int, int]:
    if size == 15:
        while True:
            more, at = block[at], at + 1
            size += more
            if more != 255:
                break
    return size, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
