"""Encoded keys of rows: a 64-bit hash for each row, and the bytes that distinguish keys with the same hash.

Made by `key_codec`, kept in runs, compared wherever keys are compared. Invariant: two rows have the same key
exactly when hash, null flag and bytes are all equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of n rows.

    `hashes` is (n,) uint64. Where hash and null flag are the whole key, `data` is None and `nulls`
    is (n,) bool, or None when no key is null. Else `nulls` is None and `data` holds the canonical
    bytes of each key, without nulls.
    """

    hashes: Array
    nulls: Array | None = None
    data: pa.LargeBinaryArray | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def order(self) -> Array:
        """(n,) int64: the rows by ascending hash, in any order where hashes are equal.

        Must not be changed.
        """
        return np.argsort(self.hashes)

    def among(self, rows: Array) -> Keys:
        """The keys at (m,) ascending `rows`, each once.

        Their order needs no sorting when the order of all keys is known.
        """
        if len(rows) == len(self):
            return self
        taken = self.take(rows)
        if "order" in self.__dict__:
            places: Array = np.full(len(self), -1, dtype=np.int64)
            places[rows] = np.arange(len(rows))
            places = places[self.order]
            taken.__dict__["order"] = places[places >= 0]
        return taken

    def take(self, indices: Array) -> Keys:
        """The keys at (m,) integer `indices`, which may repeat."""
        return Keys(
            self.hashes[indices],
            None if self.nulls is None else self.nulls[indices],
            None if self.data is None else self.data.take(pa.array(indices)),
        )

    def equal(self, other: Keys) -> Array:
        """(n,) bool: whether row i of both is the same key. Both have n rows and come from one codec."""
        same: Array = self.hashes == other.hashes
        if self.nulls is not None or other.nulls is not None:
            same &= _flags(self) == _flags(other)
        if self.data is not None and other.data is not None and same.any():
            same &= pc.equal(self.data, other.data).to_numpy(zero_copy_only=False)
        return same


def concat_keys(parts: Sequence[Keys]) -> Keys:
    """The rows of one or more Keys of one codec, one after the other."""
    if len(parts) == 1:
        return parts[0]
    hashes = np.concatenate([part.hashes for part in parts])
    nulls = None
    if any(part.nulls is not None for part in parts):
        nulls = np.concatenate([_flags(part) for part in parts])
    data = [part.data for part in parts if part.data is not None]
    return Keys(hashes, nulls, pa.concat_arrays(data) if data else None)


def bucket_of(hashes: Array, buckets: int) -> Array:
    """The bucket of each hash: `buckets` ranges of equal size; (n,) uint64 -> (n,) int32 in 0..buckets-1."""
    high = hashes >> np.uint64(32)
    result: Array = ((high * np.uint64(buckets)) >> np.uint64(32)).astype(np.int32)
    return result


def _flags(keys: Keys) -> Array:
    return np.zeros(len(keys), dtype=bool) if keys.nulls is None else keys.nulls
