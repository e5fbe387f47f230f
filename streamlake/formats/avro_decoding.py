"""Avro binary -> values, by decoders built once per stored schema (Avro specification, Binary Encoding).

Used for manifests and manifest lists: a record becomes a list in an order of the caller's choice, a map with integer
keys a dict at once, and what nobody asked for is passed over without being decoded. Dates and timestamps stay
numbers, decimals and UUIDs become values. Invariant: bytes that do not fit raise a ValueError or an IndexError, and
never make a decoder run on for ever.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from streamlake.spec.values import scaled

Json = Any
Decoder = Callable[[bytes, int], tuple[Any, int]]
Skipper = Callable[[bytes, int], int]

_LONGEST_SHIFT = 63


@dataclass(frozen=True)
class Layout:
    """Where a record's fields go: field id -> (slot, layout of what is inside, or None). Other fields are skipped.

    `names` stands in for ids that a writer left out. Slots without a stored field are None.
    """

    size: int
    slots: Mapping[int, tuple[int, Layout | None]]
    names: Mapping[str, int]


def decoder_of(schema: Json, layout: Layout) -> Decoder:
    """The decoder of a record schema (as JSON values): a list of `layout.size` values.

    Raises ValueError, KeyError or TypeError when the schema makes no sense.
    """
    return _Builder().decoder(schema, layout)


def decode_records(decode: Decoder, payload: bytes, count: int) -> list[Any]:
    """The records of one block. Raises ValueError when the block is longer or shorter than they are."""
    if count > len(payload):
        raise ValueError(f"a block of {len(payload)} bytes cannot hold {count} records")
    records, at = [], 0
    for _ in range(count):
        record, at = decode(payload, at)
        records.append(record)
    if at != len(payload):
        raise ValueError("a block is longer or shorter than its records")
    return records


def decode_long(data: bytes, at: int) -> tuple[int, int]:
    """The long at position `at`, and the position after it."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > _LONGEST_SHIFT:
            raise ValueError("a number is longer than 64 bits")


def _null(data: bytes, at: int) -> tuple[Any, int]:
    del data
    return None, at


def _boolean(data: bytes, at: int) -> tuple[Any, int]:
    return data[at] != 0, at + 1


def _bytes(data: bytes, at: int) -> tuple[Any, int]:
    size, at = decode_long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError("a value runs past the end of its block")
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[Any, int]:
    size, at = decode_long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError("a text runs past the end of its block")
    return data[at:end].decode("utf-8"), end


def _unpacked(layout: struct.Struct) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        return layout.unpack_from(data, at)[0], at + layout.size

    return decode


def _fixed(size: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        if end > len(data):
            raise ValueError("a value runs past the end of its block")
        return data[at:end], end

    return decode


def _converted(decode: Decoder, convert: Callable[[Any], Any]) -> Decoder:
    def decode_and_convert(data: bytes, at: int) -> tuple[Any, int]:
        value, at = decode(data, at)
        return convert(value), at

    return decode_and_convert


_PRIMITIVES: dict[str, Decoder] = {
    "null": _null,
    "boolean": _boolean,
    "int": decode_long,
    "long": decode_long,
    "float": _unpacked(struct.Struct("<f")),
    "double": _unpacked(struct.Struct("<d")),
    "bytes": _bytes,
    "string": _string,
}


def _items(data: bytes, at: int) -> tuple[int, int]:
    """The item count of the next block of an array or map, 0 at its end."""
    count = data[at]
    if count < 0x80 and not count & 1:
        return count >> 1, at + 1
    count, at = decode_long(data, at)
    if count < 0:
        count = -count
        _, at = decode_long(data, at)
    if count > len(data):
        raise ValueError("an array has more items than its block has bytes")
    return count, at


def _array(item: Decoder) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        count, at = _items(data, at)
        while count:
            for _ in range(count):
                value, at = item(data, at)
                values.append(value)
            count, at = _items(data, at)
        return values, at

    return decode


def _pairs(key: Decoder, value: Decoder) -> Decoder:
    if key is decode_long and value is decode_long:
        return _long_pairs
    if key is decode_long and value is _bytes:
        return _bytes_pairs

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        found: dict[Any, Any] = {}
        count, at = _items(data, at)
        while count:
            for _ in range(count):
                name, at = key(data, at)
                found[name], at = value(data, at)
            count, at = _items(data, at)
        return found, at

    return decode


def _long_pairs(data: bytes, at: int) -> tuple[Any, int]:
    """A map of two integers, most of which take one byte: the greater part of every manifest."""
    found: dict[int, int] = {}
    count, at = _items(data, at)
    while count:
        for _ in range(count):
            byte = data[at]
            if byte < 0x80:
                key = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                key, at = decode_long(data, at)
            byte = data[at]
            if byte < 0x80:
                found[key] = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                found[key], at = decode_long(data, at)
        count, at = _items(data, at)
    return found, at


def _bytes_pairs(data: bytes, at: int) -> tuple[Any, int]:
    """A map of integers to bytes, as the bounds of columns are stored."""
    found: dict[int, bytes] = {}
    count, at = _items(data, at)
    while count:
        for _ in range(count):
            key = data[at]
            if key < 0x80:
                key = (key >> 1) ^ -(key & 1)
                at += 1
            else:
                key, at = decode_long(data, at)
            size = data[at]
            if size < 0x80 and not size & 1:
                size >>= 1
                at += 1
            else:
                size, at = decode_long(data, at)
            end = at + size
            if size < 0 or end > len(data):
                raise ValueError("a value runs past the end of its block")
            found[key] = data[at:end]
            at = end
        count, at = _items(data, at)
    return found, at


def _union(branches: list[Decoder]) -> Decoder:
    if len(branches) == 2 and branches[0] is _null:
        present = branches[1]

        def decode_optional(data: bytes, at: int) -> tuple[Any, int]:
            branch = data[at]
            if branch == 2:
                return present(data, at + 1)
            if branch == 0:
                return None, at + 1
            raise ValueError(f"a union has no branch {branch / 2}")

        return decode_optional

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = decode_long(data, at)
        if branch < 0:
            raise ValueError(f"a union has no branch {branch}")
        return branches[branch](data, at)

    return decode


def _record(size: int, steps: list[tuple[int, Decoder | None, Skipper]]) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        values: list[Any] = [None] * size
        for slot, read, skip in steps:
            if read is None:
                at = skip(data, at)
            else:
                values[slot], at = read(data, at)
        return values, at

    return decode


class _Builder:
    """One schema under construction: named types are defined once and referred to by name after that."""

    def __init__(self) -> None:
        self._named: dict[str, Json] = {}

    def decoder(self, schema: Json, layout: Layout | None) -> Decoder:
        schema = self._resolved(schema)
        if isinstance(schema, str):
            return _PRIMITIVES[schema]
        if isinstance(schema, list):
            return _union([self.decoder(branch, layout) for branch in schema])
        kind = schema["type"]
        if kind == "record":
            return self._record(schema, layout)
        if kind == "array":
            pair = self._pair(schema["items"])
            if pair is not None:
                return _pairs(self.decoder(pair[0], None), self.decoder(pair[1], None))
            return _array(self.decoder(schema["items"], layout))
        if kind == "map":
            return _pairs(_string, self.decoder(schema["values"], None))
        if kind == "enum":
            symbols = list(schema["symbols"])
            return _converted(decode_long, lambda at: symbols[at])
        decode = _fixed(schema["size"]) if kind == "fixed" else self.decoder(kind, layout)
        return _logical(schema, decode)

    def skipper(self, schema: Json) -> Skipper:
        """Passes over a value; maps of integers, which are most of what is ever skipped, without a loop."""
        resolved = self._resolved(schema)
        if isinstance(resolved, list) and len(resolved) == 2 and resolved[0] == "null":
            present = self.skipper(resolved[1])
            return lambda data, at: present(data, at + 1) if _is_present(data, at) else at + 1
        if isinstance(resolved, dict) and resolved["type"] == "array":
            pair = self._pair(resolved["items"])
            if pair is not None and all(part in ("int", "long") for part in pair):
                return _skip_long_pairs
        decode = self.decoder(schema, None)
        return lambda data, at: decode(data, at)[1]

    def _record(self, schema: Json, layout: Layout | None) -> Decoder:
        steps: list[tuple[int, Decoder | None, Skipper]] = []
        for at, part in enumerate(schema["fields"]):
            if layout is None:
                slot, inner = at, None
            else:
                field_id = part.get("field-id", layout.names.get(part["name"], -1))
                slot, inner = layout.slots.get(field_id, (-1, None))
            read = None if slot < 0 else self.decoder(part["type"], inner)
            steps.append((slot, read, self.skipper(part["type"])))
        return _record(len(steps) if layout is None else layout.size, steps)

    def _pair(self, items: Json) -> tuple[Json, Json] | None:
        """The key and value schemas of an array that stands for a map."""
        record = self._resolved(items)
        if not isinstance(record, dict) or record["type"] != "record" or len(record["fields"]) != 2:
            return None
        key, value = record["fields"]
        return (key["type"], value["type"]) if (key["name"], value["name"]) == ("key", "value") else None

    def _resolved(self, schema: Json) -> Json:
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            return self._named[schema.rpartition(".")[2]]
        if isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"].rpartition(".")[2]] = schema
            elif isinstance(schema["type"], (dict, list)):
                return self._resolved(schema["type"])
        return schema


def _logical(schema: Json, decode: Decoder) -> Decoder:
    logical = schema.get("logicalType")
    if logical == "decimal":
        scale = int(schema.get("scale", 0))
        return _converted(decode, lambda raw: scaled(int.from_bytes(raw, "big", signed=True), scale))
    if logical == "uuid":
        return _converted(decode, lambda raw: UUID(raw) if isinstance(raw, str) else UUID(bytes=raw))
    return decode


def _is_present(data: bytes, at: int) -> bool:
    branch = data[at]
    if branch not in (0, 2):
        raise ValueError(f"a union has no branch {branch / 2}")
    return branch == 2


@lru_cache(maxsize=1024)
def _long_pairs_pattern(count: int) -> re.Pattern[bytes]:
    return re.compile(b"(?:[\x80-\xff]*[\x00-\x7f]){%d}" % (2 * count))


def _skip_long_pairs(data: bytes, at: int) -> int:
    count, at = _items(data, at)
    while count:
        match = _long_pairs_pattern(count).match(data, at)
        if match is None:
            raise ValueError("a value runs past the end of its block")
        count, at = _items(data, match.end())
    return at
