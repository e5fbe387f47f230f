"""The key codec: encodes key columns as `Keys`, a hash per row, and bytes where the hash is not the key.

Spark computes the same hash. This is the first step of everything that compares keys: routing, deduplication,
the index. Null equals null, NaN equals NaN and -0.0 equals 0.0. Invariant: hashes and bytes are stored in the
key index, so they never change for a type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.index.keys.key_columns import (
    KeyColumn,
    Rows,
    Strings,
    Words,
    binaries,
    is_word,
    joined,
    key_column,
)
from streamlake.index.keys.keys import Keys, bucket_of, concat_keys
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

__all__ = ["KEY_TYPES", "SEED", "KeyCodec", "Keys", "bucket_of", "concat_keys"]

Array = np.ndarray[Any, Any]

SEED = 42
"""The seed of the first column's hash, as in Spark's `xxhash64`; it is also the
hash of a key that is all null.
"""

KEY_TYPES = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNsType,
    TimestamptzNsType,
    StringType,
    UUIDType,
    FixedType,
    BinaryType,
)
_UNKNOWN_TO_SPARK = (TimeType, TimestampNsType, TimestamptzNsType)
_MARK = pa.scalar(b"\xff", pa.large_binary())


@dataclass(frozen=True)
class KeyCodec:
    """Encodes the key columns `fields`, in this order.

    Raises InvalidOptionError for a type that cannot be a key.
    """

    fields: tuple[NestedField, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise InvalidOptionError("the key has no column; name one or more in `key`")
        for part in self.fields:
            if not isinstance(part.type, KEY_TYPES):
                raise InvalidOptionError(
                    f"the key column '{part.name}' has the type {part.type}, which cannot be compared; a key "
                    "column has one of the types boolean, int, long, float, double, decimal, date, time, "
                    "timestamp, timestamptz, timestamp_ns, timestamptz_ns, string, uuid, fixed, binary"
                )

    @property
    def is_native(self) -> bool:
        """Whether Spark's `xxhash64` gives the same hashes for these types (uuid and fixed as binary)."""
        return not any(isinstance(part.type, _UNKNOWN_TO_SPARK) for part in self.fields)

    @property
    def hash_is_key(self) -> bool:
        """Whether hash and null flag are the whole key: one column of at most 64 bits.

        Then no bytes are kept.
        """
        return len(self.fields) == 1 and is_word(self.fields[0].type)

    def encode(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Keys:
        """The keys of n rows, from one column per field in the field's Arrow type (`arrow_type`).

        Raises SchemaMismatchError for a number of another width, which would have another hash: the table's
        column was changed since this codec was made.
        """
        for part, column in zip(self.fields, columns, strict=True):
            wanted = arrow_type(part.type)
            if pa.types.is_primitive(column.type) and column.type.bit_width != wanted.bit_width:
                raise SchemaMismatchError(
                    f"the key column '{part.name}' is read as {column.type}, and rows are found by "
                    f"{part.type}: its type was changed in the table meanwhile; start the stream again"
                )
        return self.of_parts(
            [key_column(part.type, column) for part, column in zip(self.fields, columns, strict=True)]
        )

    def of_parts(self, parts: Sequence[KeyColumn]) -> Keys:
        """The keys of n rows, from their columns in canonical form."""
        hashes: Array = np.full(len(parts[0]), SEED, dtype=np.uint64)
        for part in parts:
            found = part.hashes(hashes)
            hashes = found if part.nulls is None else np.where(part.nulls, hashes, found)
        if self.hash_is_key:
            return Keys(hashes, parts[0].nulls)
        return Keys(hashes, data=_single(parts[0]) if len(parts) == 1 else _composite(parts))


def _single(part: KeyColumn) -> pa.LargeBinaryArray:
    """The bytes of a key of one wide column: the value's own, and for null bytes that no value can have."""
    if isinstance(part, Words):
        raise AssertionError("a key of one word has no bytes")
    if isinstance(part, Rows):
        return binaries(part.bytes(), part.nulls)
    values = part.values
    if part.marked:
        marked = pc.starts_with(values, _MARK.as_py())
        if pc.any(marked).as_py():
            values = pc.if_else(marked, joined(_MARK, values), values)
    return values if part.nulls is None else pc.if_else(pa.array(part.nulls), _MARK, values)


def _composite(parts: Sequence[KeyColumn]) -> pa.LargeBinaryArray:
    """For each row: null flags of the columns, fixed values, lengths of all strings but the last, strings."""
    rows = len(parts[0])
    flags = [np.zeros(rows, dtype=np.uint8) if part.nulls is None else part.nulls for part in parts]
    head = [flag.view(np.uint8).reshape(-1, 1) for flag in flags]
    head += [part.bytes() for part in parts if not isinstance(part, Strings)]
    strings = [part for part in parts if isinstance(part, Strings)]
    head += [part.lengths().astype("<u4").view(np.uint8).reshape(-1, 4) for part in strings[:-1]]
    return joined(binaries(np.concatenate(head, axis=1)), *[part.values for part in strings])
