"""Fetcher on an executor: one offset range -> raw record batches.

Called once per range and task attempt; calling it again reads the same records. Invariant: the consumer's
position decides where a range ends, never a count, because compaction, transaction markers and aborted
transactions leave holes. Records below `start` and from `until` on are cut off. And records are of the topic
that the range means: at the end of a range the broker is asked whether the topic of that name is still the
same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterator, Sequence
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
from streamlake.ahead import Stopped, read_ahead
from streamlake.errors import DataLossError, SourceError
from streamlake.records import RAW_RECORDS
from streamlake.source.bulk_batches import blocks_of
from streamlake.source.consumers import borrowed_consumer
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.source.record_blocks import RecordBlock, parse_blocks
from streamlake.source.topic_now import TopicNow, topic_now
from streamlake.wording import named_error

_LOG = logging.getLogger(__name__)
_POLL_MS = 50
_CHECK_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_HEARS_SECONDS = 2.0
_GO_ON = "Set fail-on-data-loss=false to continue without these records"
CHUNK_RECORDS = 16_384
CHUNK_BYTES = 32 << 20


def fetch_range(
    source: KafkaSource,
    piece: OffsetRange,
    columns: Collection[str] = RAW_RECORDS.names,
    chunk_records: int = CHUNK_RECORDS,
) -> Iterator[pa.RecordBatch]:
    """The records of `piece` in offset order, in batches of about `chunk_records` rows of schema RAW_RECORDS.

    "key" and "headers" are filled only when they are among `columns`. Of a larger range, the next batch is
    fetched while the caller works on the last one. Raises DataLossError when offsets of the range, or its
    topic, are gone (unless fail-on-data-loss is false), and SourceError when nothing arrives for
    fetch-timeout-ms. An error for a recreated topic may come after the last batch: use the result of a range
    only after all of it is read.
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
    with borrowed_consumer(source, piece) as consumer:
        waiting: list[RecordBlock] = []
        rows = size = 0
        for start, blocks in _poll_blocks(source, consumer, piece, stopped):
            if start > piece.start:
                # Records are gone, but the batch in which the log now begins still holds some of the range.
                yield from _batches(source, waiting, piece, columns)
                waiting, rows, size = [], 0, 0
                piece = replace(piece, start=start)
            for block in blocks:
                waiting.append(block)
                rows += block.count
                size += len(block)
                if rows >= chunk_records or size >= CHUNK_BYTES:
                    yield from _batches(source, waiting, piece, columns)
                    waiting, rows, size = [], 0, 0
        yield from _batches(source, waiting, piece, columns)


def _batches(
    source: KafkaSource, blocks: list[RecordBlock], piece: OffsetRange, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    if not blocks:
        return
    most = source.settings.max_record_bytes
    batch = parse_blocks(blocks, piece.topic, piece.partition, columns, most)
    offsets = batch.column("offset").to_numpy()
    low, high = offsets.searchsorted([piece.start, piece.until])
    if high > low:
        yield batch.slice(int(low), int(high - low))


def _poll_blocks(
    source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange, stopped: Stopped
) -> Iterator[tuple[int, Iterator[RecordBlock]]]:
    """For each poll, the offset that the range now begins with and the blocks that arrived.

    Ends when the position has passed the range's end, or when `stopped`. The offset is the range's own start,
    or a later one where the log has lost records.
    """
    start = piece.start
    partition = TopicPartition(piece.topic, piece.partition)
    if not source.settings.fail_on_data_loss and _is_gone(source, consumer, piece):
        return
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
            # A broker that is being restarted: nothing arrives. How long that may last is checked below.
            answer, reached = {}, None
            clock.sleep(_RETRY_SECONDS)
        records = answer.get(partition, ())
        if records:
            yield start, _expanded(source, piece, records)
        now = clock.monotonic()
        if reached is not None and reached > position:
            position, moved_at, checked_at = reached, now, now
        elif now - moved_at > source.settings.fetch_timeout_ms / 1000:
            raise _nothing_came(source, piece, position)
        elif now - checked_at > _CHECK_SECONDS:
            checked_at = now
            position = _checked(source, consumer, piece, position)
    if not stopped():
        _require_same_topic(source, consumer, piece)


def _expanded(source: KafkaSource, piece: OffsetRange, records: Sequence[Any]) -> Iterator[RecordBlock]:
    """The record batches of a poll, decompressed one after the other."""
    for record in records:
        try:
            yield from blocks_of(record, source.settings.max_record_bytes)
        except KafkaError as error:
            raise _failed(source, piece, record.offset, error) from error


def _seek(consumer: KafkaConsumer, partition: TopicPartition, offset: int) -> None:
    if consumer.assignment() != {partition}:
        consumer.assign([partition])
        consumer.seek(partition, offset)
    elif consumer.position(partition, timeout_ms=1_000) != offset:
        consumer.seek(partition, offset)


def _is_gone(source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange) -> bool:
    """Whether the topic was recreated, so that nothing of the range can be read.

    Raises DataLossError by default. A broker may learn of a topic later than the broker that the driver
    asked, so it is asked for a while.
    """
    give_up_at = clock.monotonic() + _HEARS_SECONDS
    while True:
        try:
            now = topic_now(consumer, TopicPartition(piece.topic, piece.partition))
        except KafkaError as error:
            if not error.retriable:
                raise _failed(source, piece, piece.start, error) from error
            return False  # the topic is checked again at the end
        if not _is_another(piece, now):
            return False
        if clock.monotonic() > give_up_at:
            _report_loss(source, f"{_another(piece, now)}; none of {piece} can be read")
            return True
        clock.sleep(_RETRY_SECONDS)


def _nothing_came(source: KafkaSource, piece: OffsetRange, position: int) -> SourceError:
    return SourceError(
        f"Kafka at {source.bootstrap_servers} sent nothing of {piece} from offset {position} on for "
        f"{source.settings.fetch_timeout_ms} ms; the broker or the partition's leader is down, or "
        "fetch-timeout-ms is too short"
    )


def _checked(source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange, position: int) -> int:
    """The position, after a check that the topic and partition still exist; called while nothing arrives."""
    try:
        now = topic_now(consumer, TopicPartition(piece.topic, piece.partition))
    except KafkaError as error:
        if not error.retriable:
            raise _failed(source, piece, position, error) from error
        return position
    if piece.partition not in now.partitions:
        return _after_loss(source, consumer, piece, position, "the partition no longer exists")
    if _is_another(piece, now):
        _report_loss(source, f"{_another(piece, now)}; nothing of {piece} from offset {position} on is left")
        return piece.until
    return position


def _require_same_topic(source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange) -> None:
    """Checks after the last record that all were of the range's topic.

    Raises DataLossError; or SourceError where it is enough to discard the other topic's records, because the
    next attempt leaves them out.
    """
    if not piece.topic_id:
        return
    partition = TopicPartition(piece.topic, piece.partition)
    give_up_at = clock.monotonic() + source.settings.fetch_timeout_ms / 1000
    while True:
        try:
            now = topic_now(consumer, partition)
            break
        except KafkaError as error:
            if not error.retriable:
                raise _failed(source, piece, piece.until, error) from error
            if clock.monotonic() > give_up_at:
                raise _nothing_came(source, piece, piece.until) from error
            clock.sleep(_RETRY_SECONDS)
    if now.partitions and _is_another(piece, now):
        text = f"{_another(piece, now)} while {piece} was read: its records may be those of the new one"
        if source.settings.fail_on_data_loss:
            raise DataLossError(f"{text}. {_GO_ON}")
        raise SourceError(f"{text}; the next attempt leaves them out")


def _is_another(piece: OffsetRange, now: TopicNow) -> bool:
    return bool(piece.topic_id and now.topic_id) and piece.topic_id != now.topic_id


def _another(piece: OffsetRange, now: TopicNow) -> str:
    return (
        f"topic {piece.topic} was deleted and created again (its id was {piece.topic_id}, and is "
        f"{now.topic_id})"
    )


def _after_loss(
    source: KafkaSource, consumer: KafkaConsumer, piece: OffsetRange, position: int, why: Any
) -> int:
    """Where to go on after records of the range were found to be gone. Raises DataLossError by default."""
    partition = TopicPartition(piece.topic, piece.partition)
    try:
        exists = piece.partition in topic_now(consumer, partition).partitions
        earliest = consumer.beginning_offsets([partition])[partition] if exists else piece.until
    except KafkaError as error:
        raise _failed(source, piece, position, error) from error
    _report_loss(
        source,
        f"{piece}: offset {position} can no longer be read ({why}); the first available offset is "
        f"{earliest if exists else 'none'}. Retention has removed it, or the topic was deleted",
    )
    return min(max(earliest, position), piece.until) if earliest > position else piece.until


def _report_loss(source: KafkaSource, text: str) -> None:
    """Raises DataLossError, or logs a warning where fail-on-data-loss is false."""
    if source.settings.fail_on_data_loss:
        raise DataLossError(f"{text}. {_GO_ON}")
    _LOG.warning("%s; continuing, because fail-on-data-loss is false", text)


def _failed(source: KafkaSource, piece: OffsetRange, position: int, error: KafkaError) -> SourceError:
    where = f"{piece} at offset {position} from Kafka at {source.bootstrap_servers}"
    if isinstance(error, UnsupportedCodecError):
        return SourceError(
            f"cannot read {where}: {error}; on the executors run: python -m pip install "
            "'kafka-python[crc32c,lz4,snappy,zstd]'"
        )
    if isinstance(error, CorruptRecordError):
        return SourceError(
            f"damaged records in {where}: {error}; compare with another replica of the partition"
        )
    if isinstance(error, TopicAuthorizationFailedError):
        return SourceError(f"this user may not read {where}: {error}")
    return SourceError(f"cannot read {where}: {named_error(error)}")
