"""The decision whether tasks that read a topic's partitions may write them too, without a shuffle.

They may where all changes of a key come through one partition. That is so where the message's key is made of
the row's key, and the producer chooses the partition by it: then the buckets of the key index are made of
partitions (`index.bucketing`), and each task checks every row. Place in the flow: on the driver, one for each
run of a query into a table. Invariant: whatever is decided here, changes of a key are written by one task; a
wrong guess costs a second attempt, and no row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from streamlake.errors import InvalidOptionError, MisplacedKeyError, SourceError
from streamlake.index.bucketing import Bucketing
from streamlake.index.message_key_guess import guessed_message_key
from streamlake.index.state import IndexState
from streamlake.source.fetcher import fetch_range
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.data_types import NestedField

_LOG = logging.getLogger(__name__)

AUTO, ALWAYS, NEVER = "auto", "always", "never"
SHUFFLES = (AUTO, ALWAYS, NEVER)

_MOST_MOVED = 5_000_000
"""The most entries of an index that are moved to other buckets without an explicit setting."""
_SAMPLED_RANGES = 4
_SAMPLED_RECORDS = 64
_ENOUGH = 20
_LONGEST_WAIT = 1_024


@dataclass(frozen=True)
class Intended:
    """What a micro-batch brings to a table: the source, its topics' partition counts, and its ranges."""

    source: KafkaSource
    partitions: Mapping[str, int]
    ranges: Sequence[OffsetRange]
    checkpoint_id: int
    cores: int


class BucketOwner:
    """Decides for one table. `shuffle` is one of SHUFFLES; `buckets` is the least number of buckets; `table`
    is named in messages. `keeps`: an index that has entries keeps its buckets, however many are asked for.
    """

    def __init__(self, shuffle: str, buckets: int, table: str, *, keeps: bool = False) -> None:
        self._shuffle = shuffle
        self._buckets = buckets
        self._table = table
        self._keeps = keeps
        self._next_guess = 0
        self._guess_wait = 1
        self._has_warned = False
        self.intended: Intended | None = None
        """The micro-batch that is about to be written; None: it does not come from Kafka by topics."""

    def bucketing(self, state: IndexState, fields: Sequence[NestedField]) -> Bucketing:
        """The buckets that the index should have; `fields` are the key's. Raises InvalidOptionError where the
        property forbids a shuffle and one is needed.
        """
        now, intended = state.bucketing, self.intended
        wanted = self._wanted(state)
        if intended is None or self._shuffle == ALWAYS or not intended.partitions:
            return now
        best = fitting_buckets(intended.partitions.values(), wanted)
        if best < wanted and self._shuffle == AUTO:
            return now
        fits = all(count % now.count == 0 for count in intended.partitions.values())
        if fits and now.count >= best and (now.message_key is not None or now.count == 1):
            return now
        if self._shuffle == AUTO and sum(run.entries for run in state.runs) > _MOST_MOVED:
            return now
        if now.message_key is not None:
            _LOG.info(
                "%s: the key index goes from %d to %d buckets, because the partitions of its topics have "
                "changed",
                self._table,
                now.count,
                best,
            )
            return Bucketing(best, now.message_key)
        if best == 1:
            return Bucketing(1)
        return self._guessed(intended, fields, best) or now

    def _wanted(self, state: IndexState) -> int:
        """The least number of buckets that the index should have."""
        now = state.bucketing.count
        if not (self._keeps and state.runs) or now == self._buckets:
            return self._buckets
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s: write_parallelism=%d is for an index that is rebuilt; the key index has %d buckets, "
                "and so many tasks write",
                self._table,
                self._buckets,
                now,
            )
        return now

    def owns(self, bucketing: Bucketing, shuffled_until: tuple[int, int]) -> bool:
        """Whether the micro-batch is to be written without a shuffle."""
        intended = self.intended
        if intended is None or self._shuffle == ALWAYS or not intended.ranges:
            return False
        if bucketing.message_key is None and bucketing.count > 1:
            return False
        if any(count % bucketing.count for count in intended.partitions.values()):
            return False
        if self._shuffle == NEVER:
            return True
        _, until = shuffled_until
        waits = intended.checkpoint_id < until <= intended.checkpoint_id + _LONGEST_WAIT
        together = {piece.partition % bucketing.count for piece in intended.ranges}
        read = {(piece.topic, piece.partition) for piece in intended.ranges}
        split = intended.source.settings.min_partitions is not None
        return not (waits or split) and len(together) >= min(intended.cores, len(read))

    def misplaced(self, error: MisplacedKeyError, shuffled_until: tuple[int, int]) -> tuple[int, int]:
        """Handle a row in another partition than expected: this checkpoint and some next ones are shuffled.
        Gives how often that has happened, and the checkpoint before which shuffling lasts.

        Raises MisplacedKeyError where the property forbids a shuffle.
        """
        intended = self.intended
        assert intended is not None
        if self._shuffle == NEVER:
            raise MisplacedKeyError(
                f"{self._table}: {error}. Several tasks may have got changes of the same key, so nothing was "
                "written. With the table property streamlake.upsert.shuffle=auto such checkpoints are "
                "shuffled by key"
            )
        times = shuffled_until[0] + 1
        wait = min(1 << (times - 1), _LONGEST_WAIT)
        _LOG.warning(
            "%s: %s; this checkpoint%s shuffled by key",
            self._table,
            error,
            " is" if wait == 1 else f" and the next {wait - 1} are",
        )
        return times, intended.checkpoint_id + wait

    def _guessed(self, intended: Intended, fields: Sequence[NestedField], buckets: int) -> Bucketing | None:
        if self._shuffle == AUTO and intended.checkpoint_id < self._next_guess:
            return None
        samples = sampled_keys(intended.source, intended.ranges)
        keys = [(key, partition) for key, partition in samples if key is not None]
        framed = "avro" in intended.source.format or intended.source.format.startswith("confluent")
        found = None
        if keys and len(keys) == len(samples) and (len(keys) >= _ENOUGH or self._shuffle == NEVER):
            found = guessed_message_key(keys, fields, buckets, framed=framed)
        if found is not None:
            _LOG.info(
                "%s: its changes need no shuffle, as messages have the rows' keys: %s", self._table, found
            )
            return Bucketing(buckets, found)
        if self._shuffle == NEVER and samples:
            raise InvalidOptionError(
                f"{self._table}: the table property streamlake.upsert.shuffle is '{NEVER}', but the keys of "
                f"the messages, such as {samples[0][0]!r}, are not made of the key columns "
                f"{', '.join(part.name for part in fields)} in a way that is known, or are not what "
                f"partitions are chosen by. With '{AUTO}' such changes are shuffled by key"
            )
        self._next_guess = intended.checkpoint_id + self._guess_wait
        self._guess_wait = min(2 * self._guess_wait, _LONGEST_WAIT)
        return None


def fitting_buckets(partitions: Iterable[int], wanted: int) -> int:
    """The best number of buckets for topics with these numbers of partitions: of the numbers that divide them
    all, the smallest that is not below `wanted`, else the largest.
    """
    common = gcd(*partitions)
    divisors = [count for count in range(1, common + 1) if common % count == 0]
    return next((count for count in divisors if count >= wanted), common)


def sampled_keys(source: KafkaSource, ranges: Sequence[OffsetRange]) -> list[tuple[bytes | None, int]]:
    """(key, partition) of the first messages of some ranges; empty where they cannot be read."""
    found: list[tuple[bytes | None, int]] = []
    for piece in ranges[:_SAMPLED_RANGES]:
        some = replace(piece, until=min(piece.until, piece.start + _SAMPLED_RECORDS))
        try:
            for batch in fetch_range(source, some, ("key",)):
                found += [(key, piece.partition) for key in batch.column("key").to_pylist()]
        except SourceError as error:
            _LOG.info("%s: no sample of messages' keys: %s", source, error)
            return []
    return found
