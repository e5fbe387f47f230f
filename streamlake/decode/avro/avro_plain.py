"""Avro values as Kafka Connect's JSON converter would write them, for records that are read one by one.

Bytes become base64, and numbers with a fraction become Decimals, as `json_values` has them. Pure Python and
strict: what the bulk path would refuse is refused here, with the reason. Invariant: nothing outside of the
record is read, and no item count makes it read longer than the record is.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from streamlake.decode.avro.avro_connect import map_entry, value_type
from streamlake.decode.avro.avro_schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroType,
    AvroUnion,
)

_Read = Callable[[bytes, int], tuple[Any, int]]
"""(encoded record, position) -> (JSON value, position after it)."""

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_LONGEST = 10
_INT_BITS, _LONG_BITS = 32, 64


class PlainReader:
    """Reads values of one schema. Raises ValueError for a schema that Kafka Connect does not have."""

    def __init__(self, avro: AvroType) -> None:
        self._read = _reader(avro)

    def value(self, data: bytes, start: int = 0) -> Any:
        """The value encoded from `start` to the end of `data`. Raises ValueError with the reason."""
        try:
            found, at = self._read(data, start)
        except (IndexError, struct.error) as error:
            raise _ends_early() from error
        if at != len(data):
            raise ValueError(
                f"{len(data) - at} bytes are left after its last field, so it was written with another schema"
            )
        return found


def _reader(avro: AvroType) -> _Read:
    reader = _reader_of(value_type(avro)[0])
    if not isinstance(avro, AvroUnion):
        return reader
    null = next((at for at, branch in enumerate(avro.branches) if branch.kind == "null"), -1)
    branches = len(avro.branches)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _whole(data, at, _LONG_BITS)
        if not 0 <= branch < branches:
            raise ValueError(f"a union has no branch number {branch}")
        return (None, at) if branch == null else reader(data, at)

    return read


def _reader_of(avro: AvroType) -> _Read:
    if isinstance(avro, AvroRecord):
        return _record(avro)
    if isinstance(avro, AvroArray):
        entry = map_entry(avro)
        if entry is None:
            return _items(_reader(avro.items))
        # Connect writes maps whose keys are not strings as lists of [key, value].
        return _items(_sequence([_reader(part.type) for part in entry.fields]))
    if isinstance(avro, AvroMap):
        return _map(_reader(avro.values))
    if isinstance(avro, AvroEnum):
        return _enum(avro.symbols)
    if isinstance(avro, AvroFixed):
        size = avro.size
        return lambda data, at: (_base64(_bytes(data, at, size)), at + size)
    return _LEAVES[avro.kind]


def _record(avro: AvroRecord) -> _Read:
    parts = [(part.name, _reader(part.type)) for part in avro.fields]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        found = {}
        for name, reader in parts:
            found[name], at = reader(data, at)
        return found, at

    return read


def _sequence(readers: list[_Read]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        found = []
        for reader in readers:
            value, at = reader(data, at)
            found.append(value)
        return found, at

    return read


def _items(item: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _whole(data, at, _LONG_BITS)
            if count == 0:
                return found, at
            if count < 0:
                count = -count
                _, at = _whole(data, at, _LONG_BITS)
            if count > len(data) - at:
                raise ValueError(f"it announces {count} items, more than the rest of the record can hold")
            for _ in range(count):
                value, at = item(data, at)
                found.append(value)

    return read


def _map(value: _Read) -> _Read:
    entries = _items(_sequence([_text, value]))

    def read(data: bytes, at: int) -> tuple[Any, int]:
        found, at = entries(data, at)
        return dict(found), at

    return read


def _enum(symbols: tuple[str, ...]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _whole(data, at, _LONG_BITS)
        if not 0 <= number < len(symbols):
            raise ValueError(f"an enum has no symbol number {number}")
        return symbols[number], at

    return read


def _whole(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """A zigzag variable-length integer."""
    raw = 0
    for number in range(_LONGEST):
        part = data[at + number]
        raw |= (part & 127) << 7 * number
        if part < 128:
            break
    else:
        raise ValueError(f"a number is longer than {_LONGEST} bytes")
    if raw >> bits:
        raise ValueError(f"a number does not fit {bits} bits")
    return raw >> 1 ^ -(raw & 1), at + number + 1


def _boolean(data: bytes, at: int) -> tuple[Any, int]:
    if data[at] > 1:
        raise ValueError(f"a boolean is the byte {data[at]}")
    return data[at] == 1, at + 1


def _bytes(data: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(data):
        raise _ends_early()
    return data[at : at + size]


def _binary(data: bytes, at: int) -> tuple[Any, int]:
    size, at = _whole(data, at, _LONG_BITS)
    return _base64(_bytes(data, at, size)), at + size


def _text(data: bytes, at: int) -> tuple[Any, int]:
    size, at = _whole(data, at, _LONG_BITS)
    try:
        return _bytes(data, at, size).decode(), at + size
    except UnicodeDecodeError as error:
        raise ValueError("a text is not UTF-8") from error


def _number(found: float) -> Any:
    if math.isfinite(found):
        return Decimal(repr(found))
    return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _ends_early() -> ValueError:
    return ValueError("it ends before its last field")


_LEAVES: dict[str, _Read] = {
    "boolean": _boolean,
    "int": lambda data, at: _whole(data, at, _INT_BITS),
    "long": lambda data, at: _whole(data, at, _LONG_BITS),
    "float": lambda data, at: (_number(_FLOAT.unpack_from(data, at)[0]), at + _FLOAT.size),
    "double": lambda data, at: (_number(_DOUBLE.unpack_from(data, at)[0]), at + _DOUBLE.size),
    "bytes": _binary,
    "string": _text,
}
