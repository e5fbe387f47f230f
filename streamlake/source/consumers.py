"""Kafka consumers that outlive a micro-batch, and hand over record batches whole.

An executor's Python worker is reused, and so are its connections: a consumer is borrowed for one range and given
back. kafka-python still does everything that concerns the protocol (sessions, leaders, retries, checksums,
transactions); only the step from a record batch to Python objects is left out, which is four fifths of its cost.

Invariants: a consumer is used by one borrower at a time and never crosses a fork. What it has fetched ahead is used for the
topic that it was fetched of and not for another of the same name, and not when it is old.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaError
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kafka.record.default_records import DefaultRecordBatch

from streamlake import clock
from streamlake.errors import SourceError
from streamlake.records import MAX_RECORD_BYTES
from streamlake.source.expansion import expanded_blocks
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.oauth_tokens import token_problem
from streamlake.source.offsets import OffsetRange
from streamlake.source.record_blocks import RecordBlock, parse_blocks
from streamlake.source.topic_now import not_known, refuse_topic_creation
from streamlake.source.wide_reads import client_arguments

_IDLE_KEPT = 4
_IDLE_SECONDS = 60.0
"""How long a consumer is kept, and with it the records that it has fetched ahead."""
_BLIND_SECONDS = 2.0
"""The same where the broker has no ids of topics: that a topic was made anew is then not seen."""
_BLOCKS_PER_POLL = 256
_FETCH_BYTES = {"fetch_max_bytes": 48 << 20, "max_partition_fetch_bytes": 8 << 20}
_lock = threading.Lock()


@dataclass(eq=False)
class _Kept:
    """A consumer that nobody has borrowed: since `since`; `topics` are the ids of those that it has read."""

    owner: tuple[int, Mapping[str, Any]]
    since: float
    consumer: KafkaConsumer
    topics: dict[str, str]

    def fits(self, piece: OffsetRange) -> bool:
        """Whether what the consumer has fetched ahead may be used for the range, if it is of that topic at all."""
        read = self.topics.get(piece.topic)
        age = clock.monotonic() - self.since
        blind = read is not None and not piece.topic_id
        return read in (None, piece.topic_id) and age <= (_BLIND_SECONDS if blind else _IDLE_SECONDS)


_idle: list[_Kept] = []


@contextlib.contextmanager
def borrowed_consumer(source: KafkaSource, piece: OffsetRange) -> Iterator[KafkaConsumer]:
    """A consumer of `source` for one range, kept for the next borrower unless the body fails.

    Its `poll` gives records whose value is a record batch (see `blocks_of`). Raises SourceError when no broker answers.
    """
    arguments = consumer_arguments(source)
    owner = (os.getpid(), arguments)
    kept = _take(owner, piece) or _Kept(owner, 0.0, _connect(source, arguments), {})
    kept.topics[piece.topic] = piece.topic_id
    try:
        yield kept.consumer
    except BaseException:
        _close(kept.consumer)
        raise
    _give_back(kept)


def consumer_arguments(source: KafkaSource) -> dict[str, Any]:
    """kafka-python keywords of a consumer for `source`; what the user gave wins over what is tuned here."""
    settings = source.settings
    return {
        "client_id": "streamlake",
        **_FETCH_BYTES,
        "metrics_enabled": False,
        **client_arguments(),
        **settings.client,
        "bootstrap_servers": source.servers,
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "isolation_level": settings.isolation_level,
        "max_poll_records": _BLOCKS_PER_POLL,
    }


def blocks_of(record: Any, most: int = MAX_RECORD_BYTES) -> Iterator[RecordBlock]:
    """The records of a batch that `poll` returned, uncompressed as they are asked for, see `expansion`; a record of an old message
    format becomes a block of its own."""
    value = record.value
    if isinstance(value, _PackedBatch):
        yield from expanded_blocks(value.batch, most)
    else:
        yield _single(record)


def block_of(record: Any) -> RecordBlock:
    """The same as one block, of a batch that is small."""
    (block,) = blocks_of(record)
    return block


def close_idle_consumers() -> None:
    """Close every consumer that nobody has borrowed."""
    with _lock:
        entries, _idle[:] = list(_idle), []
    for kept in entries:
        _close(kept.consumer)


def _take(owner: tuple[int, Mapping[str, Any]], piece: OffsetRange) -> _Kept | None:
    """A kept consumer for the range. One whose records ahead are not to be used is closed: a seek would not drop them, nor
    what is still under way."""
    found: _Kept | None = None
    with _lock:
        ours = [kept for kept in _idle if kept.owner == owner]
        stale = [kept for kept in ours if not kept.fits(piece)]
        found = next((kept for kept in ours if kept not in stale), None)
        _idle[:] = [kept for kept in _idle if kept is not found and kept not in stale]
    for kept in stale:
        _close(kept.consumer)
    return found


def _give_back(given: _Kept) -> None:
    given.since = now = clock.monotonic()
    with _lock:
        _idle.insert(0, given)
        old = [kept for at, kept in enumerate(_idle) if at >= _IDLE_KEPT or now - kept.since > _IDLE_SECONDS]
        _idle[:] = [kept for kept in _idle if kept not in old]
    for kept in old:
        if kept.owner[0] == os.getpid():
            _close(kept.consumer)


def _connect(source: KafkaSource, arguments: dict[str, Any]) -> KafkaConsumer:
    try:
        consumer = KafkaConsumer(**arguments)
    except (KafkaError, OSError, ValueError, AssertionError) as error:
        raise SourceError(
            f"Kafka at {source.bootstrap_servers} cannot be reached: {type(error).__name__}: {error}"
            f"{token_problem(arguments)}; check that the broker runs, that its advertised address can be reached from the "
            "executors, and the kafka.security options"
        ) from error
    refuse_topic_creation(consumer)
    _require_blocks()
    consumer._fetcher.PartitionRecords = _BlockPartitionRecords
    return consumer


@cache
def _require_blocks() -> None:
    """Raises SourceError where kafka-python does not hand over record batches as it is expected here: a record with a header
    is sent through its walk."""
    headers = [("name", b"value")]
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 10)
    builder.append(timestamp=1, key=b"key", value=b"value", headers=headers)
    builder.close()
    try:
        walk = _BlockPartitionRecords(0, TopicPartition("t", 0), MemoryRecords(bytes(builder.buffer())))
        row = parse_blocks([block_of(record) for record in walk.take()], "t", 0).to_pylist()[0]
    except (AttributeError, TypeError, ValueError, IndexError, KafkaError) as error:
        raise not_known(f"its record batches are not found ({type(error).__name__}: {error})") from error
    if (row["key"], row["value"], row["headers"]) != (b"key", b"value", [{"key": "name", "value": b"value"}]):
        raise not_known("its record batches are not what they were")


def _close(consumer: KafkaConsumer) -> None:
    with contextlib.suppress(KafkaError, OSError):
        consumer.close(autocommit=False, timeout_ms=1_000)


class _BlockPartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """kafka-python's walk through the record batches of one fetch, which meets one pseudo record per batch."""

    def __init__(self, fetch_offset: int, tp: Any, records: Any, **settings: Any) -> None:
        super().__init__(fetch_offset, tp, _BlockRecords(records), **settings)


class _BlockRecords:
    def __init__(self, records: Any) -> None:
        self._records = records

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        return _BlockBatch(batch) if isinstance(batch, DefaultRecordBatch) else batch


class _BlockBatch:
    """A record batch that iterates over itself; everything else is asked of the real one."""

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
    """A record batch as the broker sent it."""

    batch: DefaultRecordBatch

    def __len__(self) -> int:
        return int(self.batch.size_in_bytes)


class _BlockRecord:
    """Looks like a record to the walk: its offset is the batch's last, so that a batch is skipped as a whole."""

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
    """A record of message format 0 or 1, written in the form of format 2. Those formats have checksums and no headers."""
    if record.headers or record.checksum is None:
        raise not_known(
            f"it hands over single records ({record.topic}-{record.partition} offset {record.offset})"
        )
    body = b"\x00\x00\x00" + _bytes(record.key) + _bytes(record.value) + b"\x00"
    return RecordBlock(
        record.offset, record.offset, 1, _varint(len(body)) + body, record.timestamp or -1, None
    )


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
