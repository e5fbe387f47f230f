"""Buckets of the key index: a bucket is a range of key hashes, or follows a Kafka producer's partitioner.

Used wherever rows or entries are brought to the task that owns their keys. Invariant: the bucket depends on
the row's key alone, so an index that is built from the table has its keys where routed changes look for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.keys.key_codec import SEED, KeyCodec
from streamlake.index.keys.key_columns import key_column
from streamlake.index.keys.key_values import key_values
from streamlake.index.keys.keys import Keys, bucket_of
from streamlake.index.message_key import MessageKey
from streamlake.index.runs.entries import Entries

Array = np.ndarray[Any, Any]


def hash_range(bucket: int, buckets: int) -> tuple[int, int]:
    """The lowest and the highest hash of `bucket`."""
    low, high = (-(-(number << 32) // buckets) << 32 for number in (bucket, bucket + 1))
    return low, high - 1


def split_by_bucket(entries: Entries, buckets: int) -> list[Entries]:
    """The entries of each of `buckets`, sharing memory with `entries`."""
    lows = np.array([hash_range(bucket, buckets)[0] for bucket in range(buckets)], dtype=np.uint64)
    cuts = np.append(np.searchsorted(entries.keys.hashes, lows), len(entries)).tolist()
    return [entries.slice(cuts[bucket], cuts[bucket + 1]) for bucket in range(buckets)]


@dataclass(frozen=True)
class Bucketing:
    """The assignment of keys to `count` buckets.

    Without a `message_key` buckets are ranges of the keys' hashes. With one, the bucket is the
    partitioner's number modulo `count`. Then the rows of partition p of a topic are in bucket p
    modulo `count`, wherever `count` divides the number of partitions, and as far as the producer
    makes its keys and partitions that way.
    """

    count: int
    message_key: MessageKey | None = None

    @staticmethod
    def named(count: int, message_key: str) -> Bucketing:
        """The bucketing from the text in an index state. Raises IndexDamagedError."""
        return Bucketing(count, MessageKey.from_text(message_key) if message_key else None)

    @property
    def name(self) -> str:
        """The text for the index state; empty for ranges of hashes."""
        return "" if self.message_key is None else self.message_key.to_text()

    def of_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray], codec: KeyCodec) -> Array:
        """(n,) int32: the buckets of n rows.

        The rows are given as one column per field of the codec, in the field's Arrow type.
        """
        if self.message_key is None:
            return bucket_of(codec.encode(columns).hashes, self.count)
        canonical = [
            key_column(part.type, column) for part, column in zip(codec.fields, columns, strict=True)
        ]
        return (self.message_key.numbers(canonical) % self.count).astype(np.int32)

    def of_keys(self, keys: Keys, codec: KeyCodec) -> Array:
        """(n,) int32: the buckets of n keys that the codec has encoded."""
        if self.message_key is None:
            return bucket_of(keys.hashes, self.count)
        values = key_values(codec.fields, keys, SEED)
        return (self.message_key.numbers(values) % self.count).astype(np.int32)

    def split(self, entries: Entries, codec: KeyCodec) -> list[Entries]:
        """The entries of each bucket, one per bucket."""
        if self.message_key is None:
            return split_by_bucket(entries, self.count)
        found = self.of_keys(entries.keys, codec)
        return [entries.take(np.flatnonzero(found == bucket)) for bucket in range(self.count)]
