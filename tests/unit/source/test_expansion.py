"""Record batches that expand: in one block or in many the same records, and of what is too large as much as shows it."""

from __future__ import annotations

import gzip
import resource
import zlib
from types import SimpleNamespace

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka import codec
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from streamlake.errors import SourceError
from streamlake.records import CUT_HEADER
from streamlake.source import expansion
from streamlake.source.expansion import _written, expanded_blocks
from streamlake.source.record_blocks import parse_blocks

CODECS = {
    DefaultRecordBatch.CODEC_GZIP: gzip.compress,
    DefaultRecordBatch.CODEC_SNAPPY: codec.snappy_encode,
    DefaultRecordBatch.CODEC_LZ4: lz4.frame.compress,
    DefaultRecordBatch.CODEC_ZSTD: zstandard.ZstdCompressor().compress,
}
SIZES = st.lists(st.tuples(st.integers(-1, 40), st.integers(-1, 5_000)), min_size=1, max_size=30)


def batch_of(records, kind, headers=()):
    """A batch of (key, value) as a producer makes it, whatever its size."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for at, (key, value) in enumerate(records):
        assert builder.append(at, 1_000 + at, key, value, list(headers)) is not None
    batch = DefaultRecordBatch(bytes(builder.build()))
    return packed(batch, CODECS[kind](bytes(batch._buffer[batch._pos :])), kind)


def packed(batch, data, kind):
    return SimpleNamespace(
        _buffer=bytearray(data),
        _pos=0,
        _assert_has_codec=batch._assert_has_codec,
        CODEC_NONE=0,
        compression_type=kind,
        records_count=batch.records_count,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        first_timestamp=batch.first_timestamp,
        max_timestamp=batch.max_timestamp,
        timestamp_type=0,
    )


def rows(batch, most=1 << 30):
    return [
        row for block in expanded_blocks(batch, most) for row in parse_blocks([block], "t", 0).to_pylist()
    ]


def fill(size, letter):
    return None if size < 0 else letter * size


@settings(deadline=None, max_examples=40)
@given(SIZES, st.sampled_from(list(CODECS)), st.integers(64, 4_000))
@example([(0, 0)], DefaultRecordBatch.CODEC_GZIP, 64)
def test_many_blocks_have_the_records_of_one(sizes, kind, block_bytes):
    records = [(fill(key, b"k"), fill(value, bytes([65 + value % 26]))) for key, value in sizes]
    batch = batch_of(records, kind, headers=[("h", b"1"), ("i", None)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expansion, "_PIECE", 97)
        patch.setattr(expansion, "BLOCK_BYTES", 1 << 30)
        whole = rows(batch)
        assert [(row["key"], row["value"]) for row in whole] == records
        patch.setattr(expansion, "_MOST_RATIO", dict.fromkeys(CODECS, 1 << 40))
        assert rows(batch) == whole
        patch.setattr(expansion, "BLOCK_BYTES", block_bytes)
        assert rows(batch) == whole


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize(("key", "value"), [(3, 9_000), (-1, 9_000), (2_000_000, 10), (5, -1)])
def test_a_record_that_is_too_large_is_cut(kind, key, value, monkeypatch):
    """Its neighbours are whole, and its value is longer than allowed, so that the decoder refuses it."""
    monkeypatch.setattr(expansion, "BLOCK_BYTES", 2_000)
    monkeypatch.setattr(expansion, "_PIECE", 500)
    large = (fill(key, b"K"), fill(value, b"V"))
    headers = [("h", b"x" * 5_000)] if value < 0 else []
    batch = batch_of([(b"a", b"1"), large, (b"b", b"2")] if not headers else [large], kind, headers)
    found = rows(batch, 3_000)
    assert [row["offset"] for row in found] == list(range(len(found)))
    row = found[len(found) // 2]
    assert len(row["value"]) == 3_001
    assert row["timestamp"] is not None
    assert [each["key"] for each in row["headers"]] == [CUT_HEADER]
    assert int(row["headers"][0]["value"].split()[0]) > 5_000
    if value == 9_000:
        assert (row["key"], row["value"]) == (large[0], b"V" * 3_001)
    if not headers:
        assert found[0]["headers"] == found[2]["headers"] == []
        assert [(one["key"], one["value"]) for one in (found[0], found[2])] == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize("kind", CODECS)
def test_a_bomb_takes_no_memory(kind):
    """Megabytes that expand to half a gigabyte: one value, between two small ones."""
    size = 512 << 20
    head = b"\x00\x00\x02" + b"\x01" + _written(size)
    small = [_written(7) + b"\x00\x00" + _written(at) + b"\x01" + _written(1) + b"x\x00" for at in (0, 2)]
    begin = small[0] + _written(len(head) + size + 1) + head
    batch = packed(DefaultRecordBatch(bytes(DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 99).build())), compressed(kind, begin, size, b"\x00" + small[1]), kind)  # fmt: skip
    batch.records_count, batch.last_offset = 3, 2
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = [[len(row["value"]) for row in parse_blocks([block], "t", 0).to_pylist()] for block in expanded_blocks(batch, 1 << 20)]  # fmt: skip
    assert found == [[1], [expansion.BLOCK_BYTES + 1], [1]]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 480 << 10


def compressed(kind, begin, size, end):
    """The three parts behind each other, with `size` zeros as the second, without ever having them in memory."""
    zeros = bytes(1 << 20)
    count = size // len(zeros)
    if kind == DefaultRecordBatch.CODEC_SNAPPY:
        parts = [begin, *[zeros] * count, end]
        blocks = [snappy.compress(part) for part in parts]
        framed = b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
        return codec.snappy_encode(b"")[:16] + framed
    if kind == DefaultRecordBatch.CODEC_GZIP:
        writer = zlib.compressobj(wbits=31)
        write, finish = writer.compress, writer.flush
        first = b""
    elif kind == DefaultRecordBatch.CODEC_LZ4:
        lz4_writer = lz4.frame.LZ4FrameCompressor()
        first = lz4_writer.begin()
        write, finish = lz4_writer.compress, lz4_writer.flush
    else:
        zstd_writer = zstandard.ZstdCompressor().compressobj()
        write, finish, first = zstd_writer.compress, zstd_writer.flush, b""
    return first + write(begin) + b"".join(write(zeros) for _ in range(count)) + write(end) + finish()


@pytest.mark.parametrize("kind", CODECS)
def test_damaged_data_is_an_error(kind, monkeypatch):
    records = [(b"k", bytes([at % 251]) * 50) for at in range(200)]
    for block_bytes in (1 << 20, 1_000):
        monkeypatch.setattr(expansion, "BLOCK_BYTES", block_bytes)
        monkeypatch.setattr(expansion, "_PIECE", 300)
        whole = batch_of(records, kind)
        data = bytes(whole._buffer)
        for damaged in (data[: len(data) // 2], b"\xff" * 20 + data[20:]):
            batch = SimpleNamespace(**{**vars(whole), "_buffer": bytearray(damaged)})
            with pytest.raises((CorruptRecordError, SourceError)):
                rows(batch)
        if block_bytes == 1_000:
            whole.records_count += 1
            with pytest.raises(CorruptRecordError, match="200 records instead of 201"):
                rows(whole)
