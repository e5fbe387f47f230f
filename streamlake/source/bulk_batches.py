"""Record batches as the broker sent them, instead of one Python object per record.

kafka-python still does everything that concerns the protocol (sessions, leaders, retries, checksums,
transactions). Only the step from a record batch to Python objects is left out, which is four fifths of its
cost. That needs private names of kafka-python, so they are tried once per process, on a batch made here.
Where they are not as expected, records are read one at a time through the public interface, with a warning.
Invariant: both ways give the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kafka import TopicPartition
from kafka import __version__ as client_version
from kafka.errors import KafkaError
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kafka.record.default_records import DefaultRecordBatch

from streamlake.errors import SourceError
from streamlake.records import MAX_RECORD_BYTES
from streamlake.source.expansion import expanded_blocks
from streamlake.source.record_blocks import RecordBlock, parse_blocks
from streamlake.source.topic_now import TESTED_CLIENTS

try:
    from kafka.consumer.fetcher import Fetcher

    _ClientWalk: Any = Fetcher.PartitionRecords
except (ImportError, AttributeError):  # found by `bulk_problem`
    _ClientWalk = object

_LOG = logging.getLogger(__name__)
_PROBE_KEY, _PROBE_VALUE, _PROBE_HEADERS = b"key", b"value", [("name", b"value")]


def read_in_bulk(consumer: Any) -> None:
    """Makes `poll` of the consumer return records whose value is a record batch, see `blocks_of`.

    Where the installed kafka-python does not allow it, the consumer is left unchanged, and a warning says so.
    """
    if bulk_problem() is not None:
        return
    fetcher: Any = getattr(consumer, "_fetcher", None)
    if hasattr(fetcher, "PartitionRecords"):
        fetcher.PartitionRecords = BulkWalk
    else:
        _warn("its consumer has no fetcher that can be given another walk")


@cache
def bulk_problem() -> str | None:
    """Why record batches cannot be read in bulk, logged once; None when they can.

    Sends a record with a header through kafka-python's iteration. The driver calls this when it connects, and
    so does every process that reads.
    """
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 10)
    builder.append(timestamp=1, key=_PROBE_KEY, value=_PROBE_VALUE, headers=_PROBE_HEADERS)
    builder.close()
    problem: str | None = None
    try:
        walk = BulkWalk(0, TopicPartition("t", 0), MemoryRecords(bytes(builder.buffer())))
        records = walk.take()
        row = parse_blocks([block_of(record) for record in records], "t", 0).to_pylist()[0]
    except (AttributeError, TypeError, ValueError, IndexError, KafkaError, SourceError) as error:
        problem = f"its record batches are not found ({type(error).__name__}: {error})"
    else:
        wanted = [{"key": name, "value": value} for name, value in _PROBE_HEADERS]
        if (row["key"], row["value"], row["headers"]) != (_PROBE_KEY, _PROBE_VALUE, wanted):
            problem = "its record batches are not what they were"
        elif not all(isinstance(record.value, _PackedBatch) for record in records):
            problem = "it hands over single records"
    if problem is not None:
        _warn(problem)
    return problem


@cache
def _warn(problem: str) -> None:
    _LOG.warning(
        "kafka-python %s cannot be read in bulk: %s. Records are read one at a time, with the same result "
        "but several times slower. On the driver and the executors run: python -m pip install '%s'",
        client_version,
        problem,
        TESTED_CLIENTS,
    )


def blocks_of(record: Any, most: int = MAX_RECORD_BYTES) -> Iterator[RecordBlock]:
    """The records of a batch that `poll` returned, decompressed on demand, see `expansion`.

    A single record becomes a block of its own.
    """
    value = record.value
    if isinstance(value, _PackedBatch):
        yield from expanded_blocks(value.batch, most)
    else:
        yield _single(record)


def block_of(record: Any) -> RecordBlock:
    """The records of a small batch as one block."""
    (block,) = blocks_of(record)
    return block


class BulkWalk(_ClientWalk):  # type: ignore[misc]
    """kafka-python's iteration over the record batches of one fetch, with one pseudo record per batch."""

    def __init__(self, fetch_offset: int, tp: Any, records: Any, **settings: Any) -> None:
        super().__init__(fetch_offset, tp, _BlockRecords(records), **settings)


class _BlockRecords:
    def __init__(self, records: Any) -> None:
        self._records = records

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        return _BlockBatch(batch) if isinstance(batch, DefaultRecordBatch) else batch


class _BlockBatch:
    """A record batch that iterates over itself; everything else is delegated to the real one."""

    def __init__(self, batch: DefaultRecordBatch) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[_BlockRecord]:
        yield _BlockRecord(self._batch)


@dataclass(frozen=True)
class _PackedBatch:
    """A record batch as the broker sent it; its length is its size in bytes."""

    batch: DefaultRecordBatch

    def __len__(self) -> int:
        return int(self.batch.size_in_bytes)


class _BlockRecord:
    """Looks like a record to kafka-python; has the batch's last offset, to skip the batch as a whole."""

    key = None
    headers: Sequence[Any] = ()
    checksum = None
    timestamp_type = 0

    def __init__(self, batch: DefaultRecordBatch) -> None:
        self.value = _PackedBatch(batch)
        self.offset = batch.last_offset
        self.timestamp = batch.first_timestamp
        self.size_in_bytes = batch.size_in_bytes

    def validate_crc(self) -> bool:
        return True  # the batch's checksum covers its records


def _single(record: Any) -> RecordBlock:
    """A single record in the form of message format 2.

    It is a record of format 0 or 1, which kafka-python hands over as it is, or any record where reading in
    bulk is not possible.
    """
    headers = record.headers or ()
    parts = [b"\x00\x00\x00", _bytes(record.key), _bytes(record.value), _varint(len(headers))]
    for name, value in headers:
        parts += [_bytes(name.encode()), _bytes(value)]
    body = b"".join(parts)
    timestamp = -1 if record.timestamp is None else record.timestamp
    return RecordBlock(record.offset, record.offset, 1, _varint(len(body)) + body, timestamp, None)


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    pattern = (value << 1) ^ (value >> 63)
    out = bytearray()
    while pattern > 127:
        out.append(pattern & 127 | 128)
        pattern >>= 7
    out.append(pattern)
    return bytes(out)
