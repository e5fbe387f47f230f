"""Finds out how message keys are made of row keys, by trying known encodings on a few sample messages.

Runs on the driver, once per table. Invariant: the encoding that is found reproduces every
sample, byte for byte. That says nothing of other messages, nor whether the columns hold the same
values, so tasks check every row.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.index.keys.key_columns import key_column
from streamlake.index.keys.key_values import VALUE_TYPES
from streamlake.index.keys.partitioners import PARTITIONERS
from streamlake.index.message_key import AVRO, INT32, INT64, JSON, TEXT, KeyPart, MessageKey
from streamlake.spec.types.data_types import IntegerType, LongType, NestedField, UUIDType

Parts = tuple[KeyPart, ...]
Values = list[Any]

_FRAME = 5
_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_PAYLOAD = b'"payload":'


def guessed_message_key(
    samples: Sequence[tuple[bytes, int]], fields: Sequence[NestedField], buckets: int, *, framed: bool
) -> MessageKey | None:
    """How message keys are made of the key columns `fields`; None when no known encoding fits.

    `samples` are keys with their partitions, whose number is a multiple of `buckets`. `framed` says that the
    keys have a schema registry's frame, where the bytes alone do not show it.
    """
    keys = [key for key, _ in samples]
    if not keys or not all(isinstance(part.type, VALUE_TYPES) for part in fields):
        return None
    parts = next(_fitting(keys, fields, framed), None)
    if parts is None:
        return None
    data = byte_strings(pa.array(keys, pa.large_binary()))
    for name, hash_ in PARTITIONERS.items():
        numbers = hash_(*data).tolist()
        if all(
            number % buckets == partition % buckets
            for number, (_, partition) in zip(numbers, samples, strict=True)
        ):
            return MessageKey(name, parts)
    return None


def _fitting(keys: Sequence[bytes], fields: Sequence[NestedField], framed: bool) -> Iterator[Parts]:
    ways: list[Callable[[bytes, Sequence[NestedField]], tuple[Parts, Values] | None]] = [_json, _integer]
    ways.insert(1 if framed else 2, _framed)
    for way in (*ways, _text):
        read = [way(key, fields) for key in keys]
        if any(each is None for each in read):
            continue
        found = [each for each in read if each is not None]
        parts = found[0][0]
        if all(each[0] == parts for each in found) and _gives(
            parts, [each[1] for each in found], fields, keys
        ):
            yield parts


def _gives(parts: Parts, rows: list[Values], fields: Sequence[NestedField], keys: Sequence[bytes]) -> bool:
    """Whether the parts make exactly these keys of the values."""
    try:
        columns = [
            key_column(part.type, pa.array([row[at] for row in rows], arrow_type(part.type)))
            for at, part in enumerate(fields)
        ]
        made: list[bytes] = MessageKey("murmur2", parts).bytes(columns).to_pylist()
        return made == list(keys)
    except (pa.ArrowException, ValueError, OverflowError, AttributeError):
        return False


def _json(key: bytes, fields: Sequence[NestedField]) -> tuple[Parts, Values] | None:
    """Reads a JSON key: an object with the columns, compact or as Python spaces it, or the only value.

    Kafka Connect's schema may come before it. A number alone is also text, and is left to `_text`.
    """
    try:
        content = json.loads(key)
    except ValueError:
        return None
    prefix = suffix = b""
    if isinstance(content, dict) and list(content) == ["schema", "payload"]:
        at = key.rfind(_PAYLOAD) + len(_PAYLOAD)
        prefix, suffix, content = key[:at], b"}", content["payload"]
    if not isinstance(content, dict):
        if len(fields) > 1 or not (prefix or isinstance(content, str)):
            return None
        value = _value(content, fields[0])
        return _compact((KeyPart(prefix), KeyPart(column=0, form=JSON), KeyPart(suffix))), [value]
    numbers = {part.name: at for at, part in enumerate(fields)}
    if set(content) != set(numbers):
        return None
    parts = [KeyPart(prefix)]
    lead, colon, comma = b"{", b":", b","
    if b'": ' in key[len(prefix) :]:
        colon, comma = b": ", b", "
    for name in content:
        parts += [
            KeyPart(lead + json.dumps(name, ensure_ascii=False).encode() + colon),
            KeyPart(column=numbers[name], form=JSON),
        ]
        lead = comma
    parts.append(KeyPart(b"}" + suffix))
    return _compact(parts), [_value(content[part.name], part) for part in fields]


def _framed(key: bytes, fields: Sequence[NestedField]) -> tuple[Parts, Values] | None:
    """Reads a key with a schema registry's frame: JSON, or Avro with the columns in order.

    The columns may be optional or not.
    """
    if len(key) <= _FRAME or key[0]:
        return None
    inner = _json(key[_FRAME:], fields)
    if inner is not None:
        return _compact((KeyPart(key[:_FRAME]), *inner[0])), inner[1]
    for optional in (False, True):
        parts = [KeyPart(key[:_FRAME])]
        values = []
        at = _FRAME
        for number, part in enumerate(fields):
            if optional:
                if key[at : at + 1] != b"\x02":
                    break
                parts.append(KeyPart(b"\x02"))
                at += 1
            value, at = _zigzag(key, at)
            if not isinstance(part.type, (IntegerType, LongType)):
                end = at + max(value, 0)
                text = key[at:end].decode(errors="replace")
                values.append(_value(text, part))
                at = end
            else:
                values.append(value)
            parts.append(KeyPart(column=number, form=AVRO))
        if len(values) == len(fields) and at == len(key):
            return _compact(parts), values
    return None


def _integer(key: bytes, fields: Sequence[NestedField]) -> tuple[Parts, Values] | None:
    """Reads a number in 4 or 8 bytes."""
    if len(fields) > 1 or len(key) not in (4, 8) or not isinstance(fields[0].type, (IntegerType, LongType)):
        return None
    # Digits could also be a very large number in that many bytes; they are taken as text.
    if _INTEGER.fullmatch(key):
        return None
    form = INT32 if len(key) == 4 else INT64
    return (KeyPart(column=0, form=form),), [int.from_bytes(key, "big", signed=True)]


def _text(key: bytes, fields: Sequence[NestedField]) -> tuple[Parts, Values] | None:
    """Reads the only column's value as text."""
    if len(fields) > 1:
        return None
    type_ = fields[0].type
    if isinstance(type_, (IntegerType, LongType)):
        value: Any = int(key) if _INTEGER.fullmatch(key) else None
    else:
        try:
            value = _value(key.decode(), fields[0])
        except UnicodeDecodeError:
            return None
    return None if value is None else ((KeyPart(column=0, form=TEXT),), [value])


def _value(value: Any, part: NestedField) -> Any:
    if isinstance(part.type, UUIDType) and isinstance(value, str):
        try:
            return uuid.UUID(value).bytes
        except ValueError:
            return None
    return None if isinstance(value, (bool, float)) else value


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it. Beyond the end, zeros are read."""
    value = 0
    for shift, byte in enumerate(islice(data[at : at + 10], 10)):
        value |= (byte & 0x7F) << (7 * shift)
        at += 1
        if not byte & 0x80:
            break
    return (value >> 1) ^ -(value & 1), at


def _compact(parts: Sequence[KeyPart]) -> Parts:
    """The parts without empty literals, and with literals that follow each other joined."""
    found: list[KeyPart] = []
    for part in parts:
        if part.column is None and not part.literal:
            continue
        if found and part.column is None and found[-1].column is None:
            found[-1] = KeyPart(found[-1].literal + part.literal)
        else:
            found.append(part)
    return tuple(found)
