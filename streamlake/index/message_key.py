"""The message key: the bytes that a producer makes from a row's key, and the partition number from them.

A message key is a sequence of literal bytes and key columns, each column in one of a few forms. For example,
`{"id":5}` is `{"id":`, column 0 as JSON, `}`. Used by `bucketing`. Invariant: the number depends on the row's
key alone, so rows of one key always have the same number. Whether it is the producer's number is another
question, which the user of this number has to check.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import IndexDamagedError
from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.index.keys.key_columns import KeyColumn, Rows, Strings, Words, binaries, joined
from streamlake.index.keys.partitioners import PARTITIONERS
from streamlake.index.runs.run_format import ADVICE

Array = np.ndarray[Any, Any]

TEXT = "text"
"""Numbers in decimal digits, text as it is, a uuid in its canonical form."""
JSON = "json"
"""The text form as Jackson writes it into JSON, without spaces; null is `null`."""
AVRO = "avro"
"""As in Avro: numbers as zigzag varints, texts and uuids as strings."""
INT32, INT64 = "int32", "int64"
"""The number big-endian in 4 or 8 bytes, as Kafka's IntegerSerializer and LongSerializer write it."""
FORMS = (TEXT, JSON, AVRO, INT32, INT64)

_QUOTE = pa.scalar(b'"', pa.large_binary())
_DASHES = (8, 13, 18, 23)
_ESCAPES = {at: f"\\u{at:04X}" for at in range(0x20)} | {
    ord(short): f"\\{letter}" for short, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)
}


@dataclass(frozen=True)
class KeyPart:
    """A part of a message key: a literal, or the key column number `column` in one of FORMS."""

    literal: bytes = b""
    column: int | None = None
    form: str = TEXT


@dataclass(frozen=True)
class MessageKey:
    """The parts of a message key, in order, and the producer's partitioner, one of PARTITIONERS."""

    partitioner: str
    parts: tuple[KeyPart, ...]

    def numbers(self, columns: Sequence[KeyColumn]) -> Array:
        """(n,) int64, not negative: the partitioner's number of each key.

        The partition is this number modulo the partition count.
        """
        return PARTITIONERS[self.partitioner](*byte_strings(self.bytes(columns)))

    def bytes(self, columns: Sequence[KeyColumn]) -> pa.LargeBinaryArray:
        """The message keys of n rows, from the canonical form of their key columns."""
        pieces = [
            pa.scalar(part.literal, pa.large_binary())
            if part.column is None
            else _written(columns[part.column], part.form)
            for part in self.parts
        ]
        if all(isinstance(piece, pa.Scalar) for piece in pieces):
            raise ValueError("a message key without a column cannot identify rows")
        return joined(*pieces)

    def to_text(self) -> str:
        """The message key as JSON, for the index's state."""
        parts = [
            {"bytes": part.literal.hex()} if part.column is None else {"column": part.column, "as": part.form}
            for part in self.parts
        ]
        return json.dumps({"partitioner": self.partitioner, "parts": parts}, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> MessageKey:
        """The inverse of `to_text`. Raises IndexDamagedError."""
        try:
            content = json.loads(text)
            parts = tuple(
                KeyPart(bytes.fromhex(part["bytes"]))
                if "bytes" in part
                else KeyPart(column=int(part["column"]), form=part["as"])
                for part in content["parts"]
            )
            found = MessageKey(content["partitioner"], parts)
            known = found.partitioner in PARTITIONERS and all(part.form in FORMS for part in parts)
        except (ValueError, KeyError, TypeError) as cause:
            raise IndexDamagedError(
                f"the key index is in buckets of a message key that cannot be read, {text!r}; {ADVICE}"
            ) from cause
        if not known:
            raise IndexDamagedError(
                f"the key index is in buckets of a message key that this version does not know, {text}; "
                f"{ADVICE}"
            )
        return found


def _written(column: KeyColumn, form: str) -> pa.LargeBinaryArray:
    """The values in a form, without nulls."""
    if form in (INT32, INT64):
        if not isinstance(column, Words):
            raise ValueError(f"only a number has the form {form}")
        return binaries(
            column.values.astype(">i4" if form == INT32 else ">i8")
            .view(np.uint8)
            .reshape(-1, 4 if form == INT32 else 8)
        )
    if form == AVRO:
        return (
            _zigzag(column.values)
            if isinstance(column, Words)
            else joined(_zigzag(byte_strings(_text(column))[2]), _text(column))
        )
    text = _text(column)
    if form == TEXT:
        return text
    if not isinstance(column, Words):
        text = joined(_QUOTE, _escaped(text) if isinstance(column, Strings) else text, _QUOTE)
    if column.nulls is not None and column.nulls.any():
        at = np.where(column.nulls, len(text), np.arange(len(text)))
        text = pa.concat_arrays([text, pa.array([b"null"], pa.large_binary())]).take(pa.array(at))
    return text


def _text(column: KeyColumn) -> pa.LargeBinaryArray:
    if isinstance(column, Words):
        return pa.array(column.values).cast(pa.large_string()).cast(pa.large_binary())
    if isinstance(column, Rows):
        return _uuid_text(column.values)
    return column.values


def _escaped(text: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Texts with JSON's escapes; few texts need any."""
    data, starts, lengths = byte_strings(text)
    first, last = (int(starts[0]), int(starts[-1] + lengths[-1])) if len(starts) else (0, 0)
    odd: Array = first + np.flatnonzero(
        (data[first:last] < 0x20) | (data[first:last] == 0x22) | (data[first:last] == 0x5C)
    )
    if not len(odd):
        return text
    rows = np.unique(np.searchsorted(starts, odd, side="right") - 1)
    made = [
        value.decode(errors="replace").translate(_ESCAPES) for value in text.take(pa.array(rows)).to_pylist()
    ]
    at: Array = np.arange(len(text))
    at[rows] = len(text) + np.arange(len(rows))
    return pa.concat_arrays([text, pa.array([each.encode() for each in made], pa.large_binary())]).take(
        pa.array(at)
    )


def _uuid_text(rows: Array) -> pa.LargeBinaryArray:
    digits: Array = np.empty((len(rows), 32), dtype=np.uint8)
    digits[:, 0::2], digits[:, 1::2] = rows >> 4, rows & 15
    digits += np.where(digits < 10, np.uint8(ord("0")), np.uint8(ord("a") - 10))
    text: Array = np.full((len(rows), 36), ord("-"), dtype=np.uint8)
    text[:, [at for at in range(36) if at not in _DASHES]] = digits
    return binaries(text)


def _zigzag(values: Array) -> pa.LargeBinaryArray:
    """Integers as Avro's variable-length numbers."""
    signed = np.asarray(values, dtype=np.int64)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    groups: Array = np.empty((len(left), 10), dtype=np.uint8)
    used: Array = np.empty((len(left), 10), dtype=bool)
    for at in range(10):
        used[:, at] = left != 0 if at else True
        groups[:, at] = left & np.uint64(0x7F)
        left = left >> np.uint64(7)
        groups[:, at] |= np.where(left != 0, np.uint8(0x80), np.uint8(0))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(used.sum(axis=1))])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(groups[used])]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(signed), buffers)
