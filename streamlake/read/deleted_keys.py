"""Keys deleted by equality deletes, each with the rank of the newest delete file that holds it.

The files of one scope are merged into one sorted structure per scan, and whole batches of rows are looked up
in it. A row is deleted when its key was deleted by a file newer than the row's own. Null equals null, NaN
equals NaN, -0.0 equals 0.0 (spec: Equality Delete Files). Invariant: hashes only narrow the search; keys are
equal when all of their bytes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.keys.key_codec import KeyCodec
from streamlake.index.keys.key_columns import Words, is_word, key_column
from streamlake.index.keys.keys import Keys, concat_keys
from streamlake.read.sorted_lookup import SortedLookup
from streamlake.spec.types.data_types import NestedField

Array = np.ndarray[Any, Any]

NEVER = -1
"""The rank of a key that no delete file holds."""

_PENDING_ROWS = 1 << 21
_WORD_BITS = 64


@dataclass(frozen=True, eq=False)
class CodedKeys:
    """Key columns of n rows as sortable codes: `codes` (n,) uint64, `nulls` (n,) bool or None.

    Without `keys` the code of a row that is not null is its key. With `keys` it is a hash, and `keys`
    distinguishes keys with the same hash.
    """

    codes: Array
    nulls: Array | None = None
    keys: Keys | None = None

    def __len__(self) -> int:
        return len(self.codes)


class KeyCoding:
    """Codes key columns: a single column of at most 64 bits by its value, anything else by hash and bytes."""

    def __init__(self, fields: Sequence[NestedField]) -> None:
        self._fields = tuple(fields)
        self._codec = KeyCodec(self._fields)
        self.is_exact = len(self._fields) == 1 and is_word(self._fields[0].type)

    def code(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> CodedKeys:
        """The codes of n rows; there is one column per field, in the field's Arrow type."""
        if self.is_exact:
            words = key_column(self._fields[0].type, columns[0])
            assert isinstance(words, Words)
            return CodedKeys(words.values.astype(np.int64, copy=False).view(np.uint64), words.nulls)
        keys = self._codec.encode(columns)
        return CodedKeys(keys.hashes, None, keys)


class DeletedKeys:
    """Deleted keys with the rank of the newest delete of each.

    Ranks are small integers; a larger one is newer. Immutable once built, so threads may share it.
    """

    def __init__(self, codes: Array, ranks: Array, keys: Keys | None, null_rank: int) -> None:
        """`codes` ascending (n,) uint64, `ranks` (n,) int32, `keys` their keys where codes are hashes."""
        self._codes, self._ranks, self._keys = codes, ranks, keys
        self._null_rank = null_rank
        self._lookup = SortedLookup(codes)

    def __len__(self) -> int:
        return len(self._codes) + (self._null_rank != NEVER)

    @property
    def nbytes(self) -> int:
        """Memory that the structure takes, in bytes."""
        data = 0 if self._keys is None or self._keys.data is None else self._keys.data.nbytes
        return int(self._codes.nbytes + self._ranks.nbytes + self._lookup.nbytes + data)

    def newest(self, rows: CodedKeys) -> Array:
        """(n,) int32: the rank of each row's newest delete, or NEVER."""
        found: Array = np.full(len(rows), NEVER, dtype=np.int32)
        for asked, entries in self._lookup.matches(rows.codes):
            if rows.keys is not None and self._keys is not None:
                same = self._keys.take(entries).equal(rows.keys.take(asked))
                asked, entries = asked[same], entries[same]
            found[asked] = np.maximum(found[asked], self._ranks[entries])
        if rows.nulls is not None:
            found[rows.nulls] = self._null_rank
        return found


class DeletedKeysBuilder:
    """Merges the keys of delete files.

    It holds each distinct key once, and a bounded number of further rows.
    """

    def __init__(self) -> None:
        self._merged = _Entries(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int32), None)
        self._pending: list[_Entries] = []
        self._pending_rows = 0
        self._null_rank = NEVER

    def add(self, rows: CodedKeys, rank: int) -> None:
        """Add the keys of the delete file of this rank."""
        if not len(rows):
            return
        codes = rows.codes
        if rows.nulls is not None:
            if rows.nulls.any():
                self._null_rank = max(self._null_rank, rank)
            codes = codes[~rows.nulls]
        self._pending.append(_Entries(codes, np.full(len(codes), rank, dtype=np.int32), rows.keys))
        self._pending_rows += len(codes)
        if self._pending_rows >= max(_PENDING_ROWS, len(self._merged.codes)):
            self._merge()

    def build(self) -> DeletedKeys:
        """The merged keys of all files that were added."""
        self._merge()
        merged = self._merged
        return DeletedKeys(merged.codes, merged.ranks, merged.keys, self._null_rank)

    def _merge(self) -> None:
        if self._pending:
            parts = self._pending if not len(self._merged.codes) else [self._merged, *self._pending]
            self._pending, self._pending_rows = [], 0
            self._merged = _newest_of_each(_joined(parts))


@dataclass(frozen=True, eq=False)
class _Entries:
    codes: Array
    ranks: Array
    keys: Keys | None


def _joined(parts: Sequence[_Entries]) -> _Entries:
    keys = [part.keys for part in parts if part.keys is not None]
    return _Entries(
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.ranks for part in parts]),
        concat_keys(keys) if keys else None,
    )


def _newest_of_each(entries: _Entries) -> _Entries:
    """Entries sorted by code, with the newest of each key.

    Keys whose hashes collide may occur several times.
    """
    codes, ranks = entries.codes, entries.ranks
    if not len(codes):
        return entries
    if entries.keys is None:
        packed = _packed(codes, ranks)
        if packed is not None:
            return packed
    order = np.lexsort((ranks, codes))
    codes, ranks = codes[order], ranks[order]
    same = codes[1:] == codes[:-1]
    keys = entries.keys
    if keys is not None:
        keys = keys.take(order)
        at = np.flatnonzero(same)
        same[at] = keys.take(at).equal(keys.take(at + 1))
    newest = np.flatnonzero(np.append(~same, True))
    return _Entries(codes[newest], ranks[newest], None if keys is None else keys.take(newest))


def _packed(codes: Array, ranks: Array) -> _Entries | None:
    """As `_newest_of_each`, by sorting single words that hold code and rank.

    Only where the range of the codes leaves space for the rank.
    """
    lowest = codes.min()
    bits = int(ranks.max()).bit_length()
    if int(codes.max() - lowest).bit_length() + bits > _WORD_BITS:
        return None
    shift = np.uint64(bits)
    words = (codes - lowest) << shift
    words |= ranks.astype(np.uint64)
    words.sort()
    found = words >> shift
    newest: Array = np.append(found[1:] != found[:-1], True)
    mask = np.uint64((1 << bits) - 1)
    return _Entries(found[newest] + lowest, (words[newest] & mask).astype(np.int32), None)


def merged_keys(parts: Iterable[tuple[CodedKeys, int]]) -> DeletedKeys:
    """The deleted keys of (keys, rank) pairs in any order."""
    builder = DeletedKeysBuilder()
    for rows, rank in parts:
        builder.add(rows, rank)
    return builder.build()
