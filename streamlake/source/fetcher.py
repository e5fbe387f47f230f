"""One offset range -> raw record batches, on an executor.

Called once per range and task attempt; calling it again reads the same records. Invariant: the end of a range is
known by the consumer's position, never by counting: compaction, transaction markers and aborted transactions leave
holes. Records below `start` and from `until` on are cut off.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)

from streamlake import clock
from streamlake.errors import DataLossError, SourceError
from streamlake.records import RAW_RECORDS
from streamlake.source.ahead import Stopped, read_ahead
from streamlake.source.consumers import block_of, borrowed_consumer
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.source.record_blocks import RecordBlock, parse_blocks

_LOG = logging.getLogger(__name__)
_POLL_MS = 50
_CHECK_SECONDS = 5.0
_RETRY_SECONDS = 0.1
CHUNK_RECORDS = 16_384
CHUNK_BYTES = 32 << 20


def fetch_range(
    source: KafkaSource,
    piece: OffsetRange,
    columns: Collection[str] = RAW_RECORDS.names,
    chunk_records: int = CHUNK_RECORDS,
) -> Iterator[pa.RecordBatch]:
    """The records of `piece` in offset order, in batches of about `chunk_records` rows of schema RAW_RECORDS.

    "key" and "headers" are filled only when they are among `columns`. Of a larger range the next batch is fetched while the
    caller is busy with the last one. Raises DataLossError when offsets of the range are gone (unless fail-on-data-loss is
    false), and SourceError when nothing arrives for fetch-timeout-ms.
    """
    if piece.size <= 0:
        return iter(())
    chunks = partial(_chunks, source, piece, columns, chunk_records)
    return read_ahead(chunks) if piece.size > chunk_records else chunks(_never)


def _never() -> bool:
    return False


def _chunks(
    source: KafkaSource, piece: OffsetRange, columns: Collection[str], chunk_records: int, stopped: Stopped
) -> Generator[pa.RecordBatch, None, None]:
    with borrowed_consumer(source) as consumer:
        waiting: list[RecordBlock] = []
        rows = size = 0
        for start, blocks in _poll_blocks(source, consumer, piece, stopped):
            if start > piece.start:
                # Records are gone; the batch that the log begins within still has some of them.
                yield from _batches(waiting, piece, columns)
                waiting, rows, size = [], 0, 0
                piece = replace(piece, start=start)
            for block in blocks:
                waiting.append(block)
                rows += block.count
                size += len(block)
                if rows >= chunk_records or size >= CHUNK_BYTES:
                    yield from _batches(waiting, piece, columns)
                    waiting, rows, size = [], 0, 0
        yield from _batches(waiting, piece, columns)


def _batches(
    blocks: list[RecordBlock], piece: OffsetRange, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    if not blocks:
        return
    batch = parse_blocks(blocks, piece.topic, piece.partition, columns)
    offsets = batch.column("offset").to_numpy()
    low, high = offsets.searchsorted([piece.start, piece.until])
    if high > low:
        yield batch.slice(int(low), int(high - low))


def _poll_blocks(
    source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange, stopped: Stopped
) -> Iterator[tuple[int, list[RecordBlock]]]:
    """What arrives for the range, poll by poll, until the position has passed its end, or until `stopped`; and the offset
    that the log has lost its records before, if it has."""
    start = piece.start
    partition = TopicPartition(piece.topic, piece.partition)
    _seek(consumer, partition, piece.start)
    position = piece.start
    moved_at = checked_at = clock.monotonic()
    while position < piece.until and not stopped():
        try:
            answer = consumer.poll(_POLL_MS)
            reached = consumer.position(partition, timeout_ms=1_000)
        except (OffsetOutOfRangeError, LogTruncationError) as error:
            start = reached = _after_loss(source, consumer, piece, position, error)
            _seek(consumer, partition, reached)
            answer = {}
        except KafkaError as error:
            if not error.retriable:
                raise _failed(source, piece, position, error) from error
            # A broker that is being restarted: nothing arrives, and for how long that may be is told below.
            answer, reached = {}, None
            clock.sleep(_RETRY_SECONDS)
        blocks = [block_of(record) for record in answer.get(partition, ())]
        if blocks:
            yield start, blocks
        now = clock.monotonic()
        if reached is not None and reached > position:
            position, moved_at, checked_at = reached, now, now
        elif now - moved_at > source.settings.fetch_timeout_ms / 1000:
            raise SourceError(
                f"Kafka at {source.bootstrap_servers} sent nothing of {piece} from offset {position} on for "
                f"{source.settings.fetch_timeout_ms} ms; the broker or the partition's leader is down, or "
                "fetch-timeout-ms is too short"
            )
        elif now - checked_at > _CHECK_SECONDS:
            checked_at = now
            position = _checked(source, consumer, piece, position)


def _seek(consumer: KafkaConsumer, partition: TopicPartition, offset: int) -> None:
    if consumer.assignment() != {partition}:
        consumer.assign([partition])
        consumer.seek(partition, offset)
    elif consumer.position(partition, timeout_ms=1_000) != offset:
        consumer.seek(partition, offset)


def _checked(source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange, position: int) -> int:
    """While nothing arrives: does the partition still exist, and does it still reach beyond `position`?"""
    try:
        known = consumer.partitions_for_topic(piece.topic)
    except KafkaError as error:
        if not error.retriable:
            raise _failed(source, piece, position, error) from error
        return position
    if piece.partition not in known:
        return _after_loss(source, consumer, piece, position, "the partition no longer exists")
    return position


def _after_loss(
    source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange, position: int, why: Any
) -> int:
    """Where to go on after records of the range were found to be gone. Raises DataLossError by default."""
    partition = TopicPartition(piece.topic, piece.partition)
    exists = piece.partition in consumer.partitions_for_topic(piece.topic)
    try:
        earliest = consumer.beginning_offsets([partition])[partition] if exists else piece.until
    except KafkaError as error:
        raise _failed(source, piece, position, error) from error
    text = (
        f"{piece}: offset {position} can no longer be read ({why}); the first available offset is "
        f"{earliest if exists else 'none'}"
    )
    if source.settings.fail_on_data_loss:
        raise DataLossError(
            f"{text}. Retention has removed it, or the topic was made anew. Set fail-on-data-loss=false to go on "
            "without these records"
        )
    _LOG.warning("%s; going on, because fail-on-data-loss is false", text)
    return min(max(earliest, position), piece.until) if earliest > position else piece.until


def _failed(source: KafkaSource, piece: OffsetRange, position: int, error: KafkaError) -> SourceError:
    where = f"{piece} at offset {position} from Kafka at {source.bootstrap_servers}"
    if isinstance(error, UnsupportedCodecError):
        return SourceError(
            f"cannot read {where}: {error}; on the executors run: "
            "python -m pip install 'kafka-python[crc32c,lz4,snappy,zstd]'"
        )
    if isinstance(error, CorruptRecordError):
        return SourceError(
            f"damaged records in {where}: {error}; compare with another replica of the partition"
        )
    if isinstance(error, TopicAuthorizationFailedError):
        return SourceError(f"this user may not read {where}: {error}")
    return SourceError(f"cannot read {where}: {type(error).__name__}: {error}")
