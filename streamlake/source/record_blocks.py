"""Parser of Kafka record batches into one Arrow record batch, without a Python object per record.

Stands between the consumer, which hands over `RecordBlock`s, and the fetcher, which hands on Arrow. Kafka's
record format (KIP-98, "Record" in the message format of version 2) is a chain of length-prefixed records.
Where they begin is guessed for all at once, and proved by the chain that they must form (records without
headers end with a zero byte). Only where that fails, the chain is walked record by record. The fields are
read for all records at once.

Invariant: every byte of a block belongs to exactly one of its records, or the block is refused as corrupt.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import SourceError
from streamlake.formats.arrow.byte_slices import slices
from streamlake.records import HEADERS_TYPE, MAX_RECORD_BYTES, RAW_RECORDS

_Array = np.ndarray[Any, Any]
_GUESSES = 64
"""Zero bytes per record above which a payload is walked without guessing: its values are full of zeros."""
_STRIKES = 8


class _DamagedError(Exception):
    """The bytes are not the records that their batch announces."""


@dataclass(frozen=True)
class RecordBlock:
    """The records of one Kafka record batch, decompressed but not yet parsed.

    `first_timestamp_ms` is the base of the records' timestamp deltas. `append_time_ms`, when given, is the
    timestamp of all of them (LogAppendTime).
    """

    base_offset: int
    last_offset: int
    count: int
    payload: bytes | bytearray | memoryview
    first_timestamp_ms: int
    append_time_ms: int | None

    def __len__(self) -> int:
        return len(self.payload)


def parse_blocks(
    blocks: Sequence[RecordBlock],
    topic: str,
    partition: int,
    columns: Collection[str] = RAW_RECORDS.names,
    most: int = MAX_RECORD_BYTES,
) -> pa.RecordBatch:
    """All records of `blocks` as one batch of RAW_RECORDS; "key" and "headers" are null unless in `columns`.

    Where a key has more than `most` bytes, all keys are filled, so that the record is refused in any case.
    Raises SourceError, which names the topic partition and the first offset, when the bytes are not records.
    """
    blocks = [block for block in blocks if block.count]
    if not blocks:
        return pa.RecordBatch.from_pylist([], schema=RAW_RECORDS)
    where = f"{topic}-{partition} from offset {blocks[0].base_offset}"
    counts = np.array([block.count for block in blocks], dtype=np.int64)
    payload = b"".join([block.payload for block in blocks])
    ends = np.cumsum([len(block.payload) for block in blocks], dtype=np.int64)
    if len(payload) > 2_000_000_000:
        raise SourceError(
            f"{where}: {len(payload)} bytes of records at once are more than one batch can hold"
        )
    try:
        return _parsed(blocks, counts, payload, ends, topic, partition, columns, most)
    except (_DamagedError, IndexError) as error:
        raise SourceError(
            f"{where}: the records are damaged: {error}; compare with another replica"
        ) from error


def _parsed(
    blocks: Sequence[RecordBlock],
    counts: _Array,
    payload: bytes,
    ends: _Array,
    topic: str,
    partition: int,
    columns: Collection[str],
    most: int,
) -> pa.RecordBatch:
    data = np.frombuffer(payload, dtype=np.uint8)
    begins = _guessed_chain(data, int(counts.sum()), ends)
    if begins is None:
        begins = _chain(payload, int(counts.sum()))
    length, starts = _varints(data, begins)
    stops = starts + length
    if not np.array_equal(stops[np.cumsum(counts) - 1], ends):
        raise _DamagedError("they do not fill their batch exactly")
    timestamp_delta, at = _varints(data, starts + 1)
    offset_delta, at = _varints(data, at)
    key_length, key_start = _varints(data, at)
    key_end = key_start + np.maximum(key_length, 0)
    value_length, value_start = _varints(data, key_end)
    value_end = value_start + np.maximum(value_length, 0)
    header_count, header_start = _varints(data, value_end)
    if np.any(header_start > stops) or np.any(header_start[header_count == 0] != stops[header_count == 0]):
        raise _DamagedError("the fields of one do not fill its length")
    buffer = pa.py_buffer(payload)
    offsets = (
        np.repeat(np.array([block.base_offset for block in blocks], dtype=np.int64), counts) + offset_delta
    )
    rows = len(offsets)
    key = (
        slices(buffer, key_start, key_end, key_length < 0, pa.binary())
        if "key" in columns or int(key_length.max()) > most
        else pa.nulls(rows, pa.binary())
    )
    headers = (
        _headers(data, buffer, header_start, header_count, stops)
        if "headers" in columns
        else pa.nulls(rows, HEADERS_TYPE)
    )
    return pa.RecordBatch.from_arrays(
        [
            key,
            slices(buffer, value_start, value_end, value_length < 0, pa.binary()),
            pa.repeat(pa.scalar(topic, pa.string()), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            pa.array(offsets),
            _timestamps(blocks, counts, timestamp_delta),
            headers,
        ],
        schema=RAW_RECORDS,
    )


def _guessed_chain(data: _Array, count: int, ends: _Array) -> _Array | None:
    """Where each of `count` records begins, or None where that cannot be found without walking.

    A record's last byte is its number of headers, and the byte after its length has no bit set. So a record
    may begin after any zero whose successor is a length that leads to another such position. Guesses that no
    other one leads to are dropped until each leads to the next one. Then they are the complete walk from the
    first byte on.
    """
    zeros = data == 0
    if np.count_nonzero(zeros) > _GUESSES * count:
        return None
    starts = np.concatenate([[0], np.flatnonzero(zeros) + 1])
    starts = starts[: np.searchsorted(starts, len(data) - 1)]
    try:
        length, body = _varints(data, starts)
    except _DamagedError:
        return None
    follows = body + length
    fits = (length > 0) & (follows <= len(data)) & (body < len(data))
    starts, body, follows = starts[fits], body[fits], follows[fits]
    plausible = data[body] == 0
    starts, follows = starts[plausible], follows[plausible]
    for _ in range(_STRIKES):
        if len(starts) == count:
            break
        reached: _Array = np.zeros(len(data) + 1, dtype=bool)
        reached[0] = True
        reached[follows] = True
        kept = reached[starts]
        if kept.all():
            break
        starts, follows = starts[kept], follows[kept]
    chained = len(starts) == count and starts[0] == 0 and follows[-1] == len(data)
    return starts if chained and np.array_equal(starts[1:], follows[:-1]) else None


def _chain(payload: bytes, count: int) -> _Array:
    """Where each of `count` records begins, by walking from record to record."""
    begins: list[int] = []
    append = begins.append
    at = 0
    for _ in range(count):
        append(at)
        low = payload[at]
        if low < 128:
            at += 1 + (low >> 1)
            continue
        high = payload[at + 1]
        if high < 128:
            at += 2 + ((low & 127 | high << 7) >> 1)
            continue
        length, size = low & 127 | (high & 127) << 7, 2
        while high > 127:
            high = payload[at + size]
            length |= (high & 127) << 7 * size
            size += 1
        at += size + (length >> 1)
    if at != len(payload):
        raise _DamagedError(f"{count} records end at byte {at} of {len(payload)}")
    return np.array(begins, dtype=np.int64)


def _varints(data: _Array, at: _Array) -> tuple[_Array, _Array]:
    """Zigzag variable-length integers that start at `at`; their values and the positions after them."""
    if not len(at):
        return at, at
    if int(at.max()) >= len(data):
        raise _DamagedError("a field lies behind the end of its batch")
    byte = data[at].astype(np.int64)
    raw = byte & 127
    at = at + 1
    more = np.flatnonzero(byte > 127)
    shift = 7
    while len(more):
        if shift > 63 or int(at[more].max()) >= len(data):
            raise _DamagedError("a field is not a variable-length integer")
        byte = data[at[more]].astype(np.int64)
        raw[more] |= (byte & 127) << shift
        at[more] += 1
        more = more[byte > 127]
        shift += 7
    # Zigzag on the unsigned pattern: a negative `raw` is a 64-bit value, so the shift must not extend its
    # sign.
    return (raw.view(np.uint64) >> np.uint64(1)).astype(np.int64) ^ -(raw & 1), at


def _timestamps(blocks: Sequence[RecordBlock], counts: _Array, delta: _Array) -> pa.Array:
    base = np.repeat(np.array([block.first_timestamp_ms for block in blocks], dtype=np.int64), counts) + delta
    if any(block.append_time_ms is not None for block in blocks):
        fixed = [block.append_time_ms is not None for block in blocks]
        times = [block.append_time_ms or 0 for block in blocks]
        base = np.where(np.repeat(fixed, counts), np.repeat(np.array(times, dtype=np.int64), counts), base)
    missing = base < 0
    return pa.array(base * 1000, mask=missing if missing.any() else None).cast(
        RAW_RECORDS.field("timestamp").type
    )


def _headers(data: _Array, buffer: pa.Buffer, at: _Array, count: _Array, stops: _Array) -> pa.Array:
    """Header lists, read in rounds: every record's first header, then the second ones, and so on."""
    at = at.copy()
    rounds: list[tuple[_Array, ...]] = []
    left = np.flatnonzero(count > 0)
    number = 0
    while len(left):
        key_length, key_start = _varints(data, at[left])
        if (key_length < 0).any():
            raise _DamagedError("a header has no name")
        key_end = key_start + key_length
        value_length, value_start = _varints(data, key_end)
        value_end = value_start + np.maximum(value_length, 0)
        rounds.append((left, key_start, key_end, value_start, value_end, value_length < 0))
        at[left] = value_end
        number += 1
        left = left[count[left] > number]
    if not np.array_equal(at, stops):
        raise _DamagedError("the headers of one do not fill it exactly")
    offsets = pa.array(np.concatenate([[0], np.cumsum(np.maximum(count, 0))]).astype(np.int32))
    element = HEADERS_TYPE.value_type
    if not rounds:
        return pa.ListArray.from_arrays(offsets, pa.array([], element)).cast(HEADERS_TYPE)
    columns = [np.concatenate(parts) for parts in zip(*rounds, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    _, key_start, key_end, value_start, value_end, null = (column[order] for column in columns)
    names = slices(buffer, key_start, key_end, np.zeros(len(order), dtype=bool), pa.binary())
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise _DamagedError("a header's name is not UTF-8") from error
    values = slices(buffer, value_start, value_end, null, pa.binary())
    entries = pa.StructArray.from_arrays([keys, values], fields=list(element))
    return pa.ListArray.from_arrays(offsets, entries).cast(HEADERS_TYPE)
