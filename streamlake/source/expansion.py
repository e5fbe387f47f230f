"""Decompression of record batches, piece by piece, because their expanded size is unknown beforehand.

Stands between the consumer, whose batches stay as the broker sent them, and `record_blocks`. A batch that
stays small becomes one block. A larger one becomes several, cut between its records, so that a task holds
only some of it at a time. Invariants: every record of the batch is in one of its blocks. A record that is too
large to be held is there with as many bytes of its value as show that, and with a header that marks it as
cut. The decoder refuses it by its size, and what is stored of it is never taken for the whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from kafka import codec
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch

from streamlake.records import CUT_HEADER
from streamlake.source.record_blocks import RecordBlock

BLOCK_BYTES = 64 << 20
"""A batch up to this size becomes one block, as nearly all do."""
_PIECE = 1 << 20
_SLICE = 1 << 16
_LEAST = 1 << 12
_FRAME_BYTES = 1 << 10
"""More than a record has beside its key, value and headers."""
_LONGEST_KEY = 1 << 20
_MOST_RATIO = {
    DefaultRecordBatch.CODEC_GZIP: 1_040,
    DefaultRecordBatch.CODEC_LZ4: 260,
    DefaultRecordBatch.CODEC_SNAPPY: 64,
}
"""The maximum expansion of each codec. zstd is missing: it may expand by far more."""
_XERIAL_HEADER = 16


def expanded_blocks(batch: DefaultRecordBatch, most: int) -> Iterator[RecordBlock]:
    """The records of a batch, in order; a record of more than `most` bytes may be cut.

    Raises CorruptRecordError when the bytes are not what the batch announces, UnsupportedCodecError when a
    library is missing.
    """
    packed = memoryview(batch._buffer)[batch._pos :]
    kind = batch.compression_type
    if kind == batch.CODEC_NONE:
        yield _block(batch, batch.records_count, packed)
        return
    batch._assert_has_codec(kind)
    pieces = _pieces(kind, packed)
    whole = bytearray()
    for piece in pieces:
        whole += piece
        if len(whole) > BLOCK_BYTES:
            yield from _Cut(batch, whole, pieces, max(most, BLOCK_BYTES)).blocks()
            return
    yield _block(batch, batch.records_count, whole)


def _block(batch: DefaultRecordBatch, count: int, payload: bytes | bytearray | memoryview) -> RecordBlock:
    return RecordBlock(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=count,
        payload=payload,
        first_timestamp_ms=batch.first_timestamp,
        append_time_ms=batch.max_timestamp if batch.timestamp_type == 1 else None,
    )


class _Cut:
    """Walks through an expanded batch from record to record. `data` is its beginning, `pieces` the rest."""

    def __init__(
        self, batch: DefaultRecordBatch, data: bytearray, pieces: Iterator[bytes], most: int
    ) -> None:
        self._batch = batch
        self._data = data
        self._pieces = pieces
        self._most = most
        self._at = 0
        self._count = 0

    def blocks(self) -> Iterator[RecordBlock]:
        """Blocks of about BLOCK_BYTES, or of one larger record. Raises CorruptRecordError."""
        seen = 0
        while self._has(1):
            length, body = self._length()
            end = body + length
            is_large = length > self._most + _FRAME_BYTES
            if self._at and (is_large or end > len(self._data) or self._at > BLOCK_BYTES):
                seen += self._count
                yield self._taken()
                continue
            if is_large:
                seen += 1
                yield _block(self._batch, 1, self._shortened(length, body))
            elif self._has(end):
                self._at = end
                self._count += 1
            else:
                raise CorruptRecordError("the batch ends within a record")
        seen += self._count
        if self._count:
            yield self._taken()
        if seen != self._batch.records_count:
            raise CorruptRecordError(f"the batch has {seen} records instead of {self._batch.records_count}")

    def _has(self, end: int) -> bool:
        """Whether there are bytes up to `end`, after expanding more if needed."""
        wanted = max(end, self._at + 1)
        while len(self._data) < wanted:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._data += piece
        return True

    def _length(self) -> tuple[int, int]:
        """The length of the next record, and where its body begins."""
        for size in range(1, 6):
            if not self._has(self._at + size):
                break
            if self._data[self._at + size - 1] < 0x80:
                found, at = _varint(self._data, self._at)
                if found > 0:
                    return found, at
                break
        raise CorruptRecordError("the batch has a record without length")

    def _taken(self) -> RecordBlock:
        block = _block(self._batch, self._count, bytes(memoryview(self._data)[: self._at]))
        del self._data[: self._at]
        self._at = self._count = 0
        return block

    def _shortened(self, length: int, body: int) -> bytes:
        """The first record of the data with its value cut one byte above the maximum, and CUT_HEADER.

        Where key or headers are too large, the value is the bytes from the key on.
        """
        kept = self._most + 1 + 2 * _LONGEST_KEY
        if not self._has(body + min(length, kept)):
            raise CorruptRecordError("the batch ends within a record")
        data = bytes(memoryview(self._data)[body : body + min(length, kept)])
        self._skip(body + length)
        _, at = _varint(data, 1)
        _, fields = _varint(data, at)
        size, begin = _varint(data, fields)
        key, value = data[fields:begin], data[fields : fields + self._most + 1]
        if size <= _LONGEST_KEY:
            key = data[fields : begin + max(size, 0)]
            size, begin = _varint(data, begin + max(size, 0))
            if size > self._most:
                value = data[begin : begin + self._most + 1]
        else:
            key = b"\x01"  # no key
        name, said = CUT_HEADER.encode(), f"{length} bytes".encode()
        header = _written(1) + _written(len(name)) + name + _written(len(said)) + said
        written = data[:fields] + key + _written(len(value)) + value + header
        return _written(len(written)) + written

    def _skip(self, count: int) -> None:
        """Drops `count` bytes, including bytes that are not expanded yet."""
        while count > len(self._data):
            count -= len(self._data)
            piece = next(self._pieces, None)
            if piece is None:
                raise CorruptRecordError("the batch ends within a record")
            self._data = bytearray(piece)
        del self._data[:count]


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """A signed number in Kafka's encoding, and the position after it."""
    found = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise CorruptRecordError("the batch has a number that does not end")
        found |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7


def _written(value: int) -> bytes:
    pattern = value << 1
    out = bytearray()
    while pattern > 0x7F:
        out.append(pattern & 0x7F | 0x80)
        pattern >>= 7
    out.append(pattern)
    return bytes(out)


def _pieces(kind: int, packed: memoryview) -> Iterator[bytes]:
    """The expanded pieces of compressed data, in order. Raises CorruptRecordError."""
    whole: dict[int, Callable[[Any], bytes]] = {
        DefaultRecordBatch.CODEC_GZIP: codec.gzip_decode,
        DefaultRecordBatch.CODEC_LZ4: codec.lz4_decode,
        DefaultRecordBatch.CODEC_SNAPPY: codec.snappy_decode,
    }
    in_pieces: dict[int, Callable[[memoryview], Iterator[bytes]]] = {
        DefaultRecordBatch.CODEC_GZIP: _of_gzip,
        DefaultRecordBatch.CODEC_LZ4: _of_lz4,
        DefaultRecordBatch.CODEC_SNAPPY: _of_snappy,
        DefaultRecordBatch.CODEC_ZSTD: _of_zstd,
    }
    try:
        if kind in _MOST_RATIO and len(packed) * _MOST_RATIO[kind] <= BLOCK_BYTES:
            yield whole[kind](packed.tobytes())
        else:
            yield from in_pieces[kind](packed)
    except Exception as error:
        # Each of the libraries has its own errors.
        raise CorruptRecordError(
            f"the batch cannot be uncompressed: {type(error).__name__}: {error}"
        ) from error


def _of_gzip(packed: memoryview) -> Iterator[bytes]:
    reader = zlib.decompressobj(wbits=31)
    for begin in range(0, len(packed), _SLICE):
        rest = packed[begin : begin + _SLICE].tobytes()
        while rest:
            if reader.eof:
                # Another member; zeros may pad the end of the last one.
                rest = rest.lstrip(b"\x00")
                if not rest:
                    break
                reader = zlib.decompressobj(wbits=31)
            piece = reader.decompress(rest, _PIECE)
            rest = reader.unused_data if reader.eof else reader.unconsumed_tail
            if piece:
                yield piece
    while not reader.eof:
        piece = reader.decompress(b"", _PIECE)
        if not piece:
            raise EOFError("it ends too early")
        yield piece


def _of_lz4(packed: memoryview) -> Iterator[bytes]:
    library = getattr(codec, "lz4", None)
    if library is None:
        yield codec.lz4_decode(packed.tobytes())
        return
    reader = library.LZ4FrameDecompressor()
    piece = reader.decompress(packed.tobytes(), max_length=_PIECE)
    while True:
        if piece:
            yield piece
        if reader.eof:
            return
        if reader.needs_input:
            raise EOFError("it ends too early")
        piece = reader.decompress(b"", max_length=_PIECE)


def _of_snappy(packed: memoryview) -> Iterator[bytes]:
    if not codec._detect_xerial_stream(packed):
        yield _snappy_block(packed)
        return
    at = _XERIAL_HEADER
    while at < len(packed):
        (size,) = struct.unpack_from("!i", packed, at)
        yield _snappy_block(packed[at + 4 : at + 4 + size])
        at += 4 + size


def _snappy_block(packed: memoryview) -> bytes:
    data = packed.tobytes()
    size = shift = 0
    for letter in data[:5]:
        size |= (letter & 0x7F) << shift
        shift += 7
        if letter < 0x80:
            break
    if size > _MOST_RATIO[DefaultRecordBatch.CODEC_SNAPPY] * len(data):
        raise ValueError(f"{len(data)} bytes cannot be {size}")
    return bytes(codec.snappy.decompress(data))


def _of_zstd(packed: memoryview) -> Iterator[bytes]:
    with codec.zstd.ZstdDecompressor().stream_reader(BytesIO(packed), read_across_frames=True) as reader:
        # Each call allocates a buffer of this size, which is most of the work for a small batch.
        size = min(_PIECE, 8 * len(packed) + _LEAST)
        while piece := reader.read(size):
            yield piece
            size = _PIECE if len(piece) == size else _LEAST
