"""Pool of Kafka consumers that outlive a micro-batch and hand over record batches whole (see `bulk_batches`).

An executor's Python worker is reused, and so are its connections: a consumer is borrowed for one range and
given back.

Invariants: a consumer is used by one borrower at a time and never crosses a fork. Records that it has
prefetched are used only for the topic that they were fetched from, not for another one of the same name, and
not when they are old.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from streamlake import clock
from streamlake.errors import SourceError
from streamlake.source.bulk_batches import bulk_problem, read_in_bulk
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.oauth_tokens import token_problem
from streamlake.source.offsets import OffsetRange
from streamlake.source.topic_now import refuse_topic_creation, require_topic_questions
from streamlake.source.wide_reads import client_arguments
from streamlake.wording import named_error

_IDLE_KEPT = 4
_IDLE_SECONDS = 60.0
"""How long a consumer is kept, and with it the records that it has prefetched."""
_BLIND_SECONDS = 2.0
"""How long it is kept where the broker has no topic ids, so that a recreated topic goes unnoticed."""
_BLOCKS_PER_POLL = 256
_RECORDS_PER_POLL = 8_192
"""The records per poll where they are read one at a time."""
_FETCH_BYTES = {"fetch_max_bytes": 48 << 20, "max_partition_fetch_bytes": 8 << 20}
_lock = threading.Lock()


@dataclass(eq=False)
class _Kept:
    """A consumer that is not borrowed, since `since`; `topics` are the ids of the topics that it has read."""

    owner: tuple[int, Mapping[str, Any]]
    since: float
    consumer: KafkaConsumer
    topics: dict[str, str]

    def fits(self, piece: OffsetRange) -> bool:
        """Whether the consumer's prefetched records, if any are of the range's topic, may be used for it."""
        read = self.topics.get(piece.topic)
        age = clock.monotonic() - self.since
        blind = read is not None and not piece.topic_id
        return read in (None, piece.topic_id) and age <= (_BLIND_SECONDS if blind else _IDLE_SECONDS)


_idle: list[_Kept] = []


@contextlib.contextmanager
def borrowed_consumer(source: KafkaSource, piece: OffsetRange) -> Iterator[KafkaConsumer]:
    """A consumer of `source` for one range, kept for the next borrower unless the body fails.

    Its `poll` gives records whose value is a record batch (see `bulk_batches`). Raises SourceError when no
    broker answers.
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
    """kafka-python keywords of a consumer for `source`; the user's options override the tuning here."""
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
        "max_poll_records": _BLOCKS_PER_POLL if bulk_problem() is None else _RECORDS_PER_POLL,
    }


def close_idle_consumers() -> None:
    """Closes every consumer that is not borrowed."""
    with _lock:
        entries, _idle[:] = list(_idle), []
    for kept in entries:
        _close(kept.consumer)


def _take(owner: tuple[int, Mapping[str, Any]], piece: OffsetRange) -> _Kept | None:
    """A kept consumer for the range, or None.

    A consumer whose prefetched records must not be used is closed: a seek would drop neither them nor those
    that are still on their way.
    """
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
            f"Kafka at {source.bootstrap_servers} cannot be reached: {named_error(error)}"
            f"{token_problem(arguments)}; check that the broker runs, that its advertised address can "
            "be reached from the executors, and the kafka.security options"
        ) from error
    refuse_topic_creation(consumer)
    require_topic_questions(consumer)
    read_in_bulk(consumer)
    return consumer


def _close(consumer: KafkaConsumer) -> None:
    with contextlib.suppress(KafkaError, OSError):
        consumer.close(autocommit=False, timeout_ms=1_000)
