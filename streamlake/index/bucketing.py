"""Which bucket of the key index a key is in: a range of hashes, or what a Kafka producer does with the key's message.

Asked wherever rows or entries are brought to the task that owns their keys. Invariant: the bucket depends on the row's key alone,
so that an index that is built from the table has its keys where routed changes look for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.buckets import split_by_bucket
from streamlake.index.entries import Entries
from streamlake.index.key_codec import SEED, KeyCodec
from streamlake.index.key_columns import key_column
from streamlake.index.key_values import key_values
from streamlake.index.keys import Keys, bucket_of
from streamlake.index.message_key import MessageKey

Array = Any  # numpy array


@dataclass(frozen=True)
class Bucketing:
    """`count` buckets. Without a `message_key` they are ranges of the keys' hashes; with one, the partitioner's number modulo
    `count`: then the rows of partition p of a topic are in bucket p modulo `count`, wherever `count` divides the number of
    partitions, and as far as the producer makes its keys and partitions so."""

    count: int
    message_key: MessageKey | None = None

    @staticmethod
    def named(count: int, message_key: str) -> Bucketing:
        """With the text that an index state has. Raises IndexDamagedError."""
        return Bucketing(count, MessageKey.from_text(message_key) if message_key else None)

    @property
    def name(self) -> str:
        """The text for the state, empty for ranges of hashes."""
        return "" if self.message_key is None else self.message_key.to_text()

    def of_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray], codec: KeyCodec) -> Array:
        """(n,) int32: the buckets of n rows, from one column per field of the codec, in the field's Arrow type."""
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
        """The entries of each bucket."""
        if self.message_key is None:
            return split_by_bucket(entries, self.count)
        found = self.of_keys(entries.keys, codec)
        return [entries.take(np.flatnonzero(found == bucket)) for bucket in range(self.count)]
